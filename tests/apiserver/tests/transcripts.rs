//! The double is asked what a real server was asked, and answers the same: the Events of `scenarios/apiserver`.

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

use apiserver::transcript::read;
use apiserver::{Access, Options, Resource, Rights, Server, User};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const TOKEN: &str = "t";

fn access(rights: Rights) -> Access {
    let user = User {
        name: "system:serviceaccount:default:kube-proxy-mute".to_owned(),
        rights,
    };
    Access::Tokens(BTreeMap::from([(TOKEN.to_owned(), user)]))
}

/// Without what no two servers have in common.
fn comparable(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    object
}

#[tokio::test]
async fn events_are_answered_as_a_real_server_answered_them() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/apiserver/events.jsonl"
    );
    let exchanges = read(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(exchanges.len() >= 9, "{}", exchanges.len());
    let server = Server::start(Options {
        access: access(Rights::All),
        ..Options::default()
    });
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(Some(TOKEN))).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.unwrap()).unwrap();
    for exchange in exchanges {
        // What was done behind the transcript's back.
        match exchange.head.answer {
            404 => {
                server.delete(Resource::Events, "default", "node-a.1");
            }
            403 => server.set_access(access(Rights::Only(Vec::new()))),
            _ => {}
        }
        let question = &exchange.question;
        let (method, uri) = question.ask.split_once(' ').unwrap();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", &question.content_type)
            .header("accept", "application/json")
            .body(Body::from(question.body.to_string().into_bytes()))
            .unwrap();
        let response = client.send(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&bytes).unwrap();
        let real: Value = serde_json::from_str(&exchange.lines.concat()).unwrap();
        assert_eq!(
            (status, comparable(answer)),
            (exchange.head.answer, comparable(real)),
            "{}",
            json!(question)
        );
    }
}
