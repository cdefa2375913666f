//! Whatever goes wrong with a watch, what is known ends as what the server has.

mod support;

use apiserver::{Damage, Fault, Options, Reply, Resource, Server, StreamingLists, objects};
use cluster::Kind;
use futures::stream::{self, StreamExt as _};
use std::time::Duration;
use support::follower::Follower;
use support::{options, patient, quick};

fn server(streaming_lists: StreamingLists) -> Server {
    let server = Server::start(Options {
        streaming_lists,
        ..Options::default()
    });
    server.apply(objects::node("node-a", "192.0.2.1"));
    server.apply(objects::service_cidr("kubernetes", "10.96.0.0/16"));
    for (name, ip) in [("a", "10.96.0.1"), ("b", "10.96.0.2")] {
        server.apply(objects::service(name, ip));
        server.apply(objects::slice(
            &format!("{name}-1"),
            name,
            &["10.0.0.1", "10.0.0.2"],
        ));
    }
    server
}

/// Changes of every kind: two of one object in a row, one that comes, one that goes, one that goes and comes.
fn changes(server: &Server) {
    server.apply(objects::slice("a-1", "a", &["10.0.0.1"]));
    server.apply(objects::slice("a-1", "a", &["10.0.0.1", "10.0.0.9"]));
    server.apply(objects::service("c", "10.96.0.3"));
    server.apply(objects::slice("c-1", "c", &["10.0.0.3"]));
    server.delete(Resource::Services, "default", "b");
    server.delete(Resource::EndpointSlices, "default", "b-1");
    server.delete(Resource::Services, "default", "a");
    server.apply(objects::service("a", "10.96.0.7"));
}

fn damages() -> Vec<Damage> {
    let garbage = |after| Damage::Garbage {
        after,
        text: "{\"type\":\"ADDED\",\"object\":{\"metadata\":".to_owned(),
    };
    vec![
        Damage::Cut { after: 0 },
        Damage::Cut { after: 1 },
        Damage::Cut { after: 4 },
        Damage::End { after: 1 },
        Damage::End { after: 4 },
        Damage::Stall { after: 0 },
        Damage::Stall { after: 3 },
        Damage::Half { after: 0 },
        Damage::Half { after: 1 },
        Damage::Half { after: 4 },
        garbage(0),
        garbage(3),
        Damage::Slow {
            bytes: 40,
            pause: Duration::from_millis(1),
        },
        Damage::Twice,
        Damage::Swap { after: 0 },
        Damage::Swap { after: 3 },
        Damage::Swap { after: 4 },
    ]
}

/// A fault while everything is quiet, one while changes come; then the changes after it.
async fn suffers(verb: &'static str, damage: Damage, lists: StreamingLists) {
    let server = server(lists);
    for resource in ["services", "endpointslices"] {
        server.fault(Fault::damage(verb, resource, damage.clone()).times(2));
    }
    let mut follower = Follower::start(options(&server.url, quick())).await;
    follower
        .until("something is heard", |follower| !follower.said().is_empty())
        .await;
    changes(&server);
    follower.until_right(&server).await;
    server.cut_all();
    server.apply(objects::slice("c-1", "c", &["10.0.0.4"]));
    follower.until_right(&server).await;
    server.heal();
    server.expire(Resource::Services);
    server.expire(Resource::EndpointSlices);
    server.delete(Resource::Services, "default", "c");
    follower.until_right(&server).await;
}

/// A few at a time, since most of their time is waiting.
async fn all(cases: impl Iterator<Item = impl Future<Output = ()>>) {
    stream::iter(cases).buffer_unordered(4).collect::<()>().await;
}

#[tokio::test]
async fn a_damaged_watch_ends_in_the_right_state() {
    let each = |lists| {
        damages()
            .into_iter()
            .map(move |damage| suffers("watch", damage, lists))
    };
    all(each(StreamingLists::Offered).chain(each(StreamingLists::Refused))).await;
}

#[tokio::test]
async fn a_damaged_list_ends_in_the_right_state() {
    let each = damages().into_iter();
    all(each.map(|damage| suffers("list", damage, StreamingLists::Refused))).await;
}

#[tokio::test]
async fn a_server_that_refuses_for_a_while_ends_in_the_right_state() {
    let replies: [fn() -> Reply; 6] = [
        || Reply::too_many_requests(0),
        || {
            Reply::whole(
                500,
                "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"etcdserver: leader changed\",\"reason\":\"InternalError\",\"code\":500}",
            )
        },
        || Reply::whole(503, "service unavailable"),
        || {
            Reply::whole(
                410,
                "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"too old\",\"reason\":\"Expired\",\"code\":410}",
            )
        },
        || Reply::HangUp,
        || Reply::Nothing,
    ];
    let each = |lists| replies.into_iter().map(move |reply| is_refused(reply, lists));
    all(each(StreamingLists::Offered).chain(each(StreamingLists::Refused))).await;
}

async fn is_refused(reply: fn() -> Reply, lists: StreamingLists) {
    let server = server(lists);
    let mut follower = Follower::start(options(&server.url, quick())).await;
    follower.until_right(&server).await;
    for verb in ["watch", "list"] {
        server.fault(Fault::instead(verb, "services", reply).times(3));
    }
    server.cut_all();
    changes(&server);
    follower.until_right(&server).await;
}

/// The server goes away for a while, and forgets meanwhile what happened.
#[tokio::test]
async fn what_happened_while_the_server_was_away_is_known_afterwards() {
    let server = server(StreamingLists::Offered);
    let mut follower = Follower::start(options(&server.url, quick())).await;
    follower.until_right(&server).await;
    for forgets in [false, true] {
        server.close();
        follower
            .until("the server is missed", |follower| !follower.failures.is_empty())
            .await;
        changes(&server);
        if forgets {
            server.compact();
        }
        server.apply(objects::service(if forgets { "d" } else { "e" }, "10.96.0.8"));
        server.apply(objects::service("b", "10.96.0.2"));
        server.apply(objects::slice("b-1", "b", &["10.0.0.2"]));
        server.open();
        follower.until_right(&server).await;
        follower.failures.clear();
    }
}

/// A server whose data went back in time accepts a watch after a version that lies ahead, and then says nothing: not even
/// bookmarks.
#[tokio::test]
async fn a_restored_backup_is_noticed_though_the_server_says_nothing_of_it() {
    for lists in [StreamingLists::Offered, StreamingLists::Refused] {
        let server = server(lists);
        let mut follower = Follower::start(options(&server.url, quick())).await;
        follower.until_right(&server).await;
        server.restore_backup();
        server.apply(objects::service("from-the-backup", "10.96.0.9"));
        server.bookmark();
        server.cut_all();
        follower.until_right(&server).await;
    }
}

/// Upstream issues 94720, 105987, 110301: after each of these orders the service has the endpoints that it should.
#[tokio::test]
async fn a_service_and_its_slices_come_and_go_in_any_order() {
    let server = Server::start(Options::default());
    let mut follower = Follower::start(options(&server.url, quick())).await;
    follower.until_connected().await;
    // The slice before its service.
    server.apply(objects::slice("s-1", "s", &["10.0.0.1"]));
    follower.until_right(&server).await;
    server.apply(objects::service("s", "10.96.0.5"));
    follower.until_right(&server).await;
    // Deleted and created again at once, with another address; its slice outlives it.
    server.delete(Resource::Services, "default", "s");
    server.apply(objects::service("s", "10.96.0.6"));
    follower.until_right(&server).await;
    // Slices of two controllers, one of which leaves its own behind.
    server.apply(objects::slice("s-mirror", "s", &["10.0.0.2"]));
    server.delete(Resource::EndpointSlices, "default", "s-1");
    server.delete(Resource::Services, "default", "s");
    follower.until_right(&server).await;
    assert_eq!(follower.snapshot.slices().count(), 1, "{}", follower.said());
    // A slice that is handed to another service.
    server.apply(objects::service("t", "10.96.0.7"));
    server.apply(objects::slice("s-mirror", "t", &["10.0.0.2"]));
    follower.until_right(&server).await;
    let service = follower.snapshot.services().next().unwrap().name.clone();
    assert_eq!(follower.snapshot.slices_of(&service).len(), 1);
    // And one that leaves the selectors.
    let mut headless = objects::slice("s-mirror", "t", &["10.0.0.2"]);
    headless["metadata"]["labels"]["service.kubernetes.io/headless"] = "".into();
    server.apply(headless);
    follower
        .until("the slice is gone", |follower| {
            follower.snapshot.slices().count() == 0
        })
        .await;
}

/// An old state of an object must not outlive a newer one, whatever the way between has done.
#[tokio::test]
async fn events_in_the_wrong_order_lead_to_a_new_list() {
    let server = server(StreamingLists::Offered);
    // Two slices and the bookmark; then two states of one slice, the older one last.
    server.fault(Fault::damage(
        "watch",
        "endpointslices",
        Damage::Swap { after: 3 },
    ));
    let mut follower = Follower::start(options(&server.url, patient())).await;
    follower.until_connected().await;
    server.apply(objects::slice("a-1", "a", &["10.0.0.1"]));
    server.apply(objects::slice("a-1", "a", &["10.0.0.1", "10.0.0.9"]));
    follower
        .until("slices are listed again", |follower| {
            follower.synced[&Kind::Slice] == 2
        })
        .await;
    follower.until_right(&server).await;
    assert!(follower.failures.is_empty(), "{}", follower.said());
}
