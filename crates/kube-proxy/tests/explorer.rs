//! The explorer's page in a browser: the questions that a person brings, answered at 10,000 Services.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod browser;

use browser::{Browser, ENTER};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVICES: usize = 10_000;
/// What a person does for an answer at most: keys pressed, texts typed.
const MOST_STEPS: usize = 3;

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// `kube-proxy explore`, and where its page is.
fn explore(manifests: &Path) -> (Running, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command.arg("explore").arg("--manifests").arg(manifests);
    command.args(["--node", "node-a", "--cluster-cidr", "10.200.0.0/13"]);
    let mut child = Running(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let mut url = String::new();
    BufReader::new(child.0.stdout.take().unwrap())
        .read_line(&mut url)
        .unwrap();
    let url = url.trim().to_owned();
    assert!(
        url.starts_with("http://127.0.0.1:") && url.ends_with("/explore/"),
        "{url:?}"
    );
    (child, url)
}

const HOSTILE: &str = "<img src=x onerror=\"window.taken=1\"><script>window.taken=1</script>";

fn service(namespace: &str, name: &str, ip: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip], "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    })
}

fn slice(namespace: &str, name: &str, endpoints: &[Value]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": namespace, "name": format!("{name}-x"), "labels": {"kubernetes.io/service-name": name}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

fn endpoint(ip: &str, ready: bool, node: &str) -> Value {
    json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": ready, "serving": ready, "terminating": false}})
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}, "spec": {"podCIDRs": ["10.200.0.0/16"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
    })
}

fn other_node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-b"}, "spec": {"podCIDRs": ["10.201.0.0/16"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.12"}]},
    })
}

/// Ten thousand Services, of which `shop/cart` has crashing pods, 99 more have no ready endpoint, and one is hostile.
fn cluster() -> Value {
    let mut items = vec![node(), other_node()];
    for i in 0..SERVICES - 2 {
        let (namespace, name) = (format!("team-{}", i % 40), format!("svc-{i}"));
        let (high, low) = (i / 250, i % 250 + 1);
        let ready = i % 100 != 50 || i == 50;
        items.push(service(&namespace, &name, &format!("10.96.{high}.{low}")));
        let endpoints = [
            endpoint(&format!("10.200.{high}.{low}"), ready, "node-a"),
            endpoint(&format!("10.201.{high}.{low}"), ready, "node-b"),
        ];
        items.push(slice(&namespace, &name, &endpoints));
    }
    items.push(service("shop", "cart", "10.97.0.1"));
    let mut crashing = endpoint("10.200.255.1", false, "node-a");
    crashing["targetRef"] = json!({"kind": "Pod", "namespace": "shop", "name": "cart-1"});
    items.push(slice(
        "shop",
        "cart",
        &[crashing, endpoint("10.201.255.1", false, "node-b")],
    ));
    items.push(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "cart-1", "labels": {"app": "cart"}},
        "spec": {"nodeName": "node-a"},
        "status": {
            "phase": "Running", "podIP": "10.200.255.1", "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "app", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
        },
    }));
    let mut hostile = service("shop", "hostile", "10.97.0.2");
    hostile["spec"]["externalIPs"] = json!([HOSTILE]);
    items.push(hostile);
    items.push(slice(
        "shop",
        "hostile",
        &[endpoint("10.200.255.2", true, HOSTILE)],
    ));
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// A person's question: how many steps and how long it took until the answer was there.
fn tell(question: &str, browser: &mut Browser, took: Duration) {
    let steps = std::mem::take(&mut browser.steps);
    _ = writeln!(
        std::io::stderr(),
        "{question}: {steps} steps, shown after {} ms",
        took.as_millis()
    );
    assert!(steps <= MOST_STEPS, "{question}: {steps} steps");
}

#[test]
fn the_questions_that_a_person_brings_are_answered_in_three_steps_at_ten_thousand_services() {
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let manifests = folder.path().join("cluster.json");
    fs::write(&manifests, cluster().to_string()).unwrap();
    let (_serving, url) = explore(&manifests);
    browser.go(&url);
    browser.wait_for("document.querySelector('#main').dataset.shown === 'services'");
    assert!(browser.text(".chip[aria-current]").starts_with("10,000"));

    which_services_fail(&mut browser);
    why_does_this_one_fail(&mut browser);
    where_does_a_packet_go(&mut browser);
    a_packet_of_another_node_is_told(&mut browser);
    every_row_is_reached_by_keys(&mut browser);
    what_is_noted_is_not_green(&mut browser);
    what_is_hostile_stays_text(&mut browser);
}

fn which_services_fail(browser: &mut Browser) {
    browser.press("f");
    let took = browser.wait_for("document.querySelector('#count')?.innerText === '100 services'");
    assert!(
        browser.text("tbody").starts_with("shop/cart"),
        "{}",
        browser.text("tbody")
    );
    tell("which services have no ready endpoints?", browser, took);
}

fn why_does_this_one_fail(browser: &mut Browser) {
    browser.press("/");
    browser.press("shop/cart");
    browser.press(ENTER);
    let took = browser.wait_for("document.querySelector('#title')?.innerText === 'shop/cart'");
    let why = browser.text("#answers");
    for words in [
        "none of the 2 endpoints of Service shop/cart is ready",
        "CrashLoopBackOff",
        "kubectl describe pod -n shop cart-1",
    ] {
        assert!(why.contains(words), "{words}: {why}");
    }
    let seen = browser.text("#seen");
    assert!(seen.starts_with("As node node-a sees it"), "{seen}");
    let endpoints = browser.text("#endpoints tbody");
    assert_eq!(endpoints.matches("not ready").count(), 2, "{endpoints}");
    assert!(
        endpoints.contains("10.200.255.1") && endpoints.contains("shop/cart-1"),
        "{endpoints}"
    );
    tell(
        "why does shop/cart fail, and how are its endpoints?",
        browser,
        took,
    );
}

fn where_does_a_packet_go(browser: &mut Browser) {
    browser.press("p");
    browser.wait_for("document.activeElement?.id === 'to'");
    browser.press("team-7/svc-7:80");
    browser.press(ENTER);
    let took = browser.wait_for("document.querySelector('#way')");
    let way = browser.text("#way");
    for words in [
        "nat KUBE-SERVICES",
        "KUBE-SVC-",
        "10.200.0.8:8080",
        "10.201.0.8:8080",
        "50 %",
        "The client is connected",
    ] {
        assert!(way.contains(words), "{words}: {way}");
    }
    tell(
        "where does a packet from a pod to team-7/svc-7 go?",
        browser,
        took,
    );
}

/// The page has one node's rules; whose packet meets another's is told.
fn a_packet_of_another_node_is_told(browser: &mut Browser) {
    let told =
        "document.querySelector('#other-node, [data-finding=seen-from]')?.innerText.includes('node-b')";
    browser.js("location.hash = '#/path?from=node-b&to=team-7/svc-7';");
    browser.wait_for(told);
    browser.js("location.hash = '#/path?from=node-a&to=team-7/svc-7';");
    browser.wait_for("document.querySelector('#seen')?.innerText.startsWith('As node node-a sees it')");
    browser.steps = 0;
}

fn every_row_is_reached_by_keys(browser: &mut Browser) {
    browser.press("s");
    browser.wait_for("document.querySelectorAll('tr.row').length === 100");
    browser.press("jjjkj");
    assert_eq!(browser.js("return Array.from(document.querySelectorAll('tr.row')).findIndex((row) => row.classList.contains('at'));"), json!(2));
    let name = browser.text("tr.row.at td");
    browser.press(ENTER);
    browser.wait_for(&format!(
        "document.querySelector('#title')?.innerText === {name:?}"
    ));
    browser.press("s");
    browser.wait_for("document.querySelectorAll('tr.row').length === 100");
    // The last row brings more.
    browser.press(&"j".repeat(100));
    browser.wait_for("document.querySelectorAll('tr.row').length === 200");
}

fn what_is_noted_is_not_green(browser: &mut Browser) {
    browser.js("location.hash = '#/services?state=noted';");
    browser.wait_for("document.querySelector('#count')?.innerText === '1 service'");
    assert_eq!(browser.text("tbody .state.warn"), "ready, with notes");
    assert_eq!(
        browser.js("return document.querySelectorAll('tbody .state.good').length;"),
        json!(0)
    );
    assert!(
        browser.text("#about").starts_with("node node-a ·"),
        "{}",
        browser.text("#about")
    );
    browser.js("location.hash = '#/services';");
    browser.wait_for("document.querySelector('#count')?.innerText.startsWith('10,000')");
}

fn what_is_hostile_stays_text(browser: &mut Browser) {
    let harmless = |browser: &Browser, selector: &str| {
        assert!(
            browser.text(selector).contains("<img src=x onerror="),
            "{}",
            browser.text(selector)
        );
        assert_eq!(
            browser.js("return document.querySelectorAll('img, main script').length;"),
            json!(0)
        );
        assert_eq!(
            browser.js("return window.taken ?? 'not taken';"),
            json!("not taken")
        );
    };
    browser.press("n");
    browser.wait_for("document.querySelector('#main').dataset.shown === 'notes'");
    harmless(browser, "#main");
    browser.js("location.hash = '#/service/shop/hostile';");
    browser.wait_for("document.querySelector('#title')?.innerText === 'shop/hostile'");
    harmless(browser, "#endpoints");
    browser.js(&format!(
        "location.hash = '#/services?search=' + encodeURIComponent({HOSTILE:?});"
    ));
    browser.wait_for("document.querySelector('#count')?.innerText.startsWith('0 services')");
    harmless(browser, "#count");
    // Even what got into the page as markup would not run.
    browser.js("const one = document.createElement('script'); one.textContent = 'window.taken = 1'; document.body.append(one);");
    browser.js("document.body.insertAdjacentHTML('beforeend', '<b id=\"b\" onclick=\"window.taken = 1\"></b>'); document.getElementById('b').click();");
    assert_eq!(
        browser.js("return window.taken ?? 'not taken';"),
        json!("not taken")
    );
}

/// The daemon in a network namespace of the test's thread, which the browser shares.
#[test]
fn what_changed_last_and_how_long_it_took_is_one_step_away() {
    if !lab::live::available(&["iptables"]) {
        return;
    }
    enter_a_namespace();
    let Some(mut browser) = Browser::open() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, object: &Value| fs::write(folder.path().join(name), object.to_string()).unwrap();
    write("node.json", &node());
    write("cart.json", &service("shop", "cart", "10.97.0.1"));
    write(
        "slice.json",
        &slice("shop", "cart", &[endpoint("10.200.255.1", false, "node-a")]),
    );
    let _daemon = daemon_over(folder.path());
    browser.go("http://127.0.0.1:10249/explore/");
    browser.wait_for("document.querySelector('#main').dataset.shown === 'services'");
    browser.wait_for("document.querySelector('tbody')?.innerText.includes('shop/cart')");

    write(
        "slice.json",
        &slice("shop", "cart", &[endpoint("10.200.255.1", true, "node-a")]),
    );
    browser.press("c");
    let took =
        browser.wait_for("document.querySelector('#changes')?.innerText.includes('not ready → ready')");
    browser.wait_for(
        "/\\d (ms|s)$/.test(document.querySelector('#changes tbody tr td:nth-child(4)').innerText)",
    );
    let row = browser.text("#changes tbody tr");
    assert!(
        row.contains("shop/cart-x") && row.contains("10.200.255.1 not ready → ready"),
        "{row}"
    );
    tell("what changed last, and how long did it take?", &mut browser, took);
    browser.press("j");
    browser.press(ENTER);
    browser.wait_for("document.querySelector('#title')?.innerText === 'shop/cart'");
    browser.wait_for("document.querySelector('#answers .card')?.dataset.reachable === 'yes'");
}

/// The daemon with its explorer, and its metrics port open.
fn daemon_over(manifests: &Path) -> Running {
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    daemon.arg("--explorer").arg("--manifests").arg(manifests);
    daemon.args([
        "--hostname-override",
        "node-a",
        "--cluster-cidr",
        "10.200.0.0/13",
        "--conntrack-max-per-core",
        "0",
    ]);
    let daemon = Running(
        daemon
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let start = Instant::now();
    while std::net::TcpStream::connect("127.0.0.1:10249").is_err() {
        assert!(
            start.elapsed() < lab::live::patience(Duration::from_mins(1)),
            "no metrics port"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon
}

/// Moves this thread, and whoever it starts, into a network namespace of its own.
fn enter_a_namespace() {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let mut holder = Running(
        Command::new("unshare")
            .args([
                "--net",
                "sh",
                "-c",
                "ip link set lo up && echo up && exec sleep 600",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(holder.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    let namespace = fs::File::open(format!("/proc/{}/ns/net", holder.0.id())).unwrap();
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(&namespace),
        Some(LinkNameSpaceType::Network),
    )
    .unwrap();
}
