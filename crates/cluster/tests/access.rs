//! Rights, tokens and certificates: what is needed, and what is said of what is missing.

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

mod support;

use apiserver::{
    Access, Fault, Options, Reply, Resource, Right, Rights, Server, StreamingLists, Transport, User, objects,
};
use cluster::Kind;
use cluster::api::{Source, WriteError};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use support::follower::{Follower, KINDS};
use support::{options_of, quick};

const TOKEN: &str = "token-of-the-proxy";

/// The rules of the `ClusterRole` in `deploy/rbac.yaml`.
fn deployed() -> Vec<Right> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
    let text = fs::read_to_string(path).unwrap();
    let role = text
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
        .find(|document| document["kind"] == "ClusterRole")
        .unwrap();
    Right::of_rules(&role["rules"])
}

fn tokens(token: &str, rights: Rights) -> Access {
    let user = User {
        name: "system:serviceaccount:kube-system:kube-proxy-rs".to_owned(),
        rights,
    };
    Access::Tokens(BTreeMap::from([(token.to_owned(), user)]))
}

/// A server over TLS that knows one token, and the kubeconfig for it in a folder of its own.
struct Site {
    server: Server,
    folder: tempfile::TempDir,
}

impl Site {
    fn new(rights: Rights, streaming_lists: StreamingLists) -> Site {
        let server = Server::start(Options {
            transport: Transport::Tls,
            access: tokens(TOKEN, rights),
            streaming_lists,
            ..Options::default()
        });
        server.apply(objects::service("a", "10.96.0.1"));
        let site = Site {
            server,
            folder: tempfile::tempdir().unwrap(),
        };
        site.write("kubeconfig", &site.server.kubeconfig(Some(TOKEN)));
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    async fn follow(&self) -> Follower {
        Follower::start(options_of(&self.path("kubeconfig"), quick())).await
    }
}

fn is_of_events(right: &Right) -> bool {
    right.resource == "events"
}

/// Lists where they do not stream, watches everywhere: with the Events, that is all there is in the file.
#[tokio::test]
async fn the_rights_as_deployed_are_enough_and_none_is_too_much() {
    let mut used = BTreeSet::new();
    for lists in [StreamingLists::Offered, StreamingLists::Refused] {
        let site = Site::new(Rights::Only(deployed()), lists);
        let mut follower = site.follow().await;
        follower.until_connected().await;
        assert!(follower.failures.is_empty(), "{}", follower.said());
        for asked in site.server.asked() {
            let verb = if asked.is_watch() { "watch" } else { "list" };
            used.insert((verb.to_owned(), asked.resource.clone()));
        }
    }
    let deployed: BTreeSet<(String, String)> = deployed()
        .into_iter()
        .filter(|right| !is_of_events(right))
        .map(|right| (right.verb, right.resource))
        .collect();
    assert_eq!(used, deployed);
}

fn kind_of(resource: &str) -> Kind {
    match resource {
        "services" => Kind::Service,
        "endpointslices" => Kind::Slice,
        "nodes" => Kind::Node,
        "servicecidrs" => Kind::ServiceCidr,
        other => panic!("no kind for {other}"),
    }
}

/// One right after another is taken away, before the start and while it runs.
#[tokio::test]
async fn each_missing_right_is_named_by_verb_and_resource_and_its_return_is_noticed() {
    let all: Vec<Right> = deployed();
    for missing in all.iter().filter(|right| !is_of_events(right)) {
        // A server that streams lists is never asked to list.
        let lists = match missing.verb.as_str() {
            "list" => StreamingLists::Refused,
            _ => StreamingLists::Offered,
        };
        let fewer = all.iter().filter(|right| *right != missing).cloned().collect();
        let site = Site::new(Rights::Only(fewer), lists);
        let mut follower = site.follow().await;
        let kind = kind_of(&missing.resource);
        follower
            .until("the missing right is named", |follower| {
                follower.failures.iter().any(|(of, error)| {
                    *of == kind
                        && error.contains("403")
                        && error.contains(&format!(
                            "cannot {} resource \"{}\"",
                            missing.verb, missing.resource
                        ))
                        && error.contains("grant this user")
                })
            })
            .await;
        assert!(
            follower.failures.iter().all(|(of, _)| *of == kind),
            "{}",
            follower.said()
        );
        site.server.set_access(tokens(TOKEN, Rights::Only(all.clone())));
        follower.until_connected().await;
        follower.until_right(&site.server).await;
    }
}

/// Neither verb on Events can be missing without a word.
#[tokio::test]
async fn each_missing_right_to_write_events_is_named_by_verb_and_resource() {
    let all = deployed();
    let rights: Vec<&Right> = all.iter().filter(|right| is_of_events(right)).collect();
    assert_eq!(rights.len(), 2, "{rights:?}");
    let event = objects::node_event("node-a.1", "node-a");
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}});
    for missing in rights {
        let site = Site::new(Rights::Only(all.clone()), StreamingLists::Offered);
        let source = Source::new(options_of(&site.path("kubeconfig"), quick()))
            .await
            .unwrap();
        let writer = source.event_writer();
        writer.create("default", &event).await.unwrap();
        writer.patch("default", "node-a.1", &series).await.unwrap();
        let fewer = all.iter().filter(|right| *right != missing).cloned().collect();
        site.server.set_access(tokens(TOKEN, Rights::Only(fewer)));
        let tried = [
            ("create", writer.create("default", &event).await),
            ("patch", writer.patch("default", "node-a.1", &series).await),
        ];
        for (verb, tried) in tried {
            let refused = format!("cannot {verb} resource \"events\" in API group \"events.k8s.io\"");
            match tried {
                Err(WriteError::Refused(text)) => {
                    assert!(text.contains("403") && text.contains(&refused), "{text}");
                    assert_eq!(verb, missing.verb);
                }
                _ => assert_ne!(verb, missing.verb),
            }
        }
    }
}

/// A busy server says how long to wait in a header alone.
#[tokio::test]
async fn an_event_that_a_busy_server_does_not_take_may_be_sent_again() {
    let site = Site::new(Rights::Only(deployed()), StreamingLists::Offered);
    let source = Source::new(options_of(&site.path("kubeconfig"), quick()))
        .await
        .unwrap();
    let event = objects::node_event("node-a.1", "node-a");
    let busy = || Reply::too_many_requests(1);
    site.server.fault(Fault::instead("create", "events", busy));
    let writer = source.event_writer();
    let tried = writer.create("default", &event).await;
    assert!(matches!(tried, Err(WriteError::Away(_))), "{tried:?}");
    writer.create("default", &event).await.unwrap();
    assert_eq!(site.server.all(Resource::Events).len(), 1);
}

#[tokio::test]
async fn a_right_taken_away_from_a_running_watch_is_named_and_what_is_known_stays() {
    let site = Site::new(Rights::All, StreamingLists::Offered);
    let mut follower = site.follow().await;
    follower.until_connected().await;
    site.server.set_access(tokens(TOKEN, Rights::Only(Vec::new())));
    site.server.cut_all();
    follower
        .until("every kind fails", |follower| {
            KINDS
                .iter()
                .all(|kind| follower.failures.iter().any(|(of, _)| of == kind))
        })
        .await;
    assert_eq!(follower.snapshot.services().count(), 1, "{}", follower.said());
    site.server.set_access(tokens(TOKEN, Rights::All));
    site.server.apply(objects::service("b", "10.96.0.2"));
    follower.until_right(&site.server).await;
}

/// Tokens of service accounts live an hour, and the file is written anew in time; or late.
#[tokio::test]
async fn a_token_that_is_written_anew_is_read_anew() {
    let site = Site::new(Rights::All, StreamingLists::Offered);
    site.write("token", TOKEN);
    let user = json!({"tokenFile": site.path("token")});
    site.write("kubeconfig", &site.server.kubeconfig_of(&user));
    let mut follower = site.follow().await;
    follower.until_connected().await;
    // In time: the first refusal makes us read it.
    site.write("token", "the-next-token");
    site.server.set_access(tokens("the-next-token", Rights::All));
    site.server.cut_all();
    site.server.apply(objects::service("b", "10.96.0.2"));
    follower.until_right(&site.server).await;
    // Late.
    site.server.set_access(tokens("the-third-token", Rights::All));
    site.server.cut_all();
    follower
        .until("the old token is refused", |follower| {
            let says = |error: &str| error.contains("401 Unauthorized") && error.contains("check the token");
            follower.failures.iter().any(|(_, error)| says(error))
        })
        .await;
    site.write("token", "the-third-token");
    site.server.apply(objects::service("c", "10.96.0.3"));
    follower.until_right(&site.server).await;
    follower.until_connected().await;
}

#[tokio::test]
async fn a_renewed_certificate_is_nothing_to_talk_about_and_another_authority_is_named() {
    let site = Site::new(Rights::All, StreamingLists::Offered);
    let mut follower = site.follow().await;
    follower.until_connected().await;
    site.server.renew_certificate();
    site.server.cut_all();
    site.server.apply(objects::service("b", "10.96.0.2"));
    follower.until_right(&site.server).await;
    assert!(!follower.said().contains("certificate"), "{}", follower.said());
    site.server.change_authority();
    site.server.cut_all();
    follower
        .until("the authority is named", |follower| {
            let says = |error: &str| error.contains("check that the certificate authority in use signed");
            follower.failures.iter().any(|(_, error)| says(error))
        })
        .await;
    assert_eq!(follower.snapshot.services().count(), 2, "{}", follower.said());
    site.write("kubeconfig", &site.server.kubeconfig(Some(TOKEN)));
    site.server.apply(objects::service("c", "10.96.0.3"));
    follower.until_right(&site.server).await;
    follower.until_connected().await;
}
