//! A headless Chromium, driven by the `WebDriver` protocol (W3C) through `chromedriver`.
//!
//! `KPRS_CHROMIUM` names the browser; it is too large a download for every run, so that tests without it are skipped, loudly.
//! `KPRS_CHROMEDRIVER` names the driver, if it is not `chromedriver`.

use serde_json::{Value, json};
use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A key that is no letter, as `WebDriver` names it.
pub const ENTER: &str = "\u{E007}";

/// A browser window.
pub struct Browser {
    driver: Child,
    port: u16,
    /// Open as long as the driver may say something.
    _said: BufReader<ChildStdout>,
    session: String,
    /// What a person did: keys pressed, texts typed.
    pub steps: usize,
}

impl Browser {
    /// Opens a window; `None`, said loudly, where no browser is named.
    pub fn open() -> Option<Browser> {
        let Some(chromium) = env::var_os("KPRS_CHROMIUM") else {
            // Past the capture of the test harness: a skip has to be seen.
            _ = writeln!(
                std::io::stderr(),
                "SKIPPED: KPRS_CHROMIUM names no Chromium to look at the page with"
            );
            return None;
        };
        let driver = env::var_os("KPRS_CHROMEDRIVER").unwrap_or_else(|| "chromedriver".into());
        let mut driver = Command::new(driver)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver, since KPRS_CHROMIUM is set");
        let mut said = BufReader::new(driver.stdout.take().expect("a pipe"));
        let port = said
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find_map(|line| port_of(&line));
        let mut browser = Browser {
            driver,
            port: port.expect("chromedriver says its port"),
            _said: said,
            session: String::new(),
            steps: 0,
        };
        let args = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1280,1000",
        ];
        let options = json!({"binary": chromium.to_string_lossy(), "args": args});
        let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}});
        let made = browser.ask("POST", "/session", &wanted);
        made["sessionId"]
            .as_str()
            .expect("a session")
            .clone_into(&mut browser.session);
        Some(browser)
    }

    /// Goes to an address.
    pub fn go(&mut self, url: &str) {
        self.command("/url", &json!({ "url": url }));
    }

    /// What a function body returns in the page.
    pub fn js(&self, body: &str) -> Value {
        self.command("/execute/sync", &json!({"script": body, "args": []}))
    }

    /// One step of a person: keys, one after the other.
    pub fn press(&mut self, keys: &str) {
        self.steps += 1;
        let each = keys.chars().flat_map(|key| {
            let key = key.to_string();
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        let actions =
            json!({"actions": [{"type": "key", "id": "keys", "actions": each.collect::<Vec<_>>()}]});
        self.command("/actions", &actions);
    }

    /// Waits until an expression is true in the page, and says how long that took.
    pub fn wait_for(&self, expression: &str) -> Duration {
        let start = Instant::now();
        let patience = Duration::from_mins(1);
        while self.js(&format!("return Boolean({expression});")) != json!(true) {
            let text = || self.js("return location.href + '\\n' + document.body.innerText;");
            assert!(start.elapsed() < patience, "never came: {expression}\n{}", text());
            sleep(Duration::from_millis(20));
        }
        start.elapsed()
    }

    /// The text of what a selector finds first.
    pub fn text(&self, selector: &str) -> String {
        let found = self.js(&format!(
            "return document.querySelector({selector:?})?.innerText ?? '';"
        ));
        found.as_str().expect("text").to_owned()
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("chromedriver listens");
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}",
            self.port
        )
        .expect("written");
        // The driver keeps connections open, whatever it is asked.
        let mut answer = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(answer.read_line(&mut head).expect("an answer"), 0, "{head}");
        }
        let length = head.to_lowercase();
        let length = length
            .split("content-length:")
            .nth(1)
            .and_then(|rest| rest.lines().next());
        let mut body = vec![0; length.and_then(|it| it.trim().parse().ok()).expect("a length")];
        answer.read_exact(&mut body).expect("a body");
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
        answer["value"].clone()
    }
}

/// "`ChromeDriver` was started successfully on port 41837."; before that it says which port it was asked for.
fn port_of(line: &str) -> Option<u16> {
    let (_, port) = line.rsplit_once("on port ")?;
    port.trim_end_matches('.').parse().ok().filter(|port| *port != 0)
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        _ = self.driver.kill();
        _ = self.driver.wait();
    }
}
