use super::*;
use model::object::Kind;
use proptest::prelude::*;
use std::io::Cursor;
use std::time::UNIX_EPOCH;

const DAY: Duration = Duration::from_hours(24);

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
}

fn here() -> Identity {
    Identity::new("https://192.0.2.1:6443", &[b"ca".to_vec()])
}

fn lines() -> Vec<Vec<u8>> {
    [
        r#"{"kind":"Node","metadata":{"name":"node-a"},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.7"}]}}"#,
        r#"{"kind":"Service","metadata":{"namespace":"default","name":"web"},"spec":{"clusterIPs":["10.96.0.1"],"ports":[{"port":80}]}}"#,
        r#"{"kind":"EndpointSlice","metadata":{"namespace":"default","name":"web-1","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","ports":[{"port":8080}],"endpoints":[{"addresses":["10.0.0.1"],"nodeName":"node-a"}]}"#,
    ]
    .map(|line| line.as_bytes().to_vec())
    .to_vec()
}

fn file_of(header: &Header, lines: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, header, lines.iter().map(Vec::as_slice)).unwrap();
    bytes
}

fn good() -> Vec<u8> {
    file_of(&Header::new("node-a", here(), at(0)), &lines())
}

fn read_at(bytes: &[u8], now: SystemTime) -> Result<Page, String> {
    let identity = here();
    let reader = Reader {
        node: "node-a",
        identity: &identity,
        max_age: DAY,
        now,
    };
    read(&mut Cursor::new(bytes), &reader).map_err(|refusal| refusal.to_string())
}

#[track_caller]
fn refused(bytes: &[u8], words: &str) {
    let reason = read_at(bytes, at(60)).expect_err("it is refused");
    assert!(reason.contains(words), "{reason}");
}

/// With a sum that is right for what is there.
fn summed(body: &[u8]) -> Vec<u8> {
    let sum = HEXLOWER.encode(&Sha256::digest(body));
    [body, format!("sha256 {sum}\n").as_bytes()].concat()
}

#[test]
fn what_was_written_is_read_with_its_age() {
    let page = read_at(&good(), at(3600)).unwrap();
    assert_eq!(page.age, Duration::from_hours(1));
    let kinds: Vec<Kind> = page.objects.iter().map(Object::kind).collect();
    assert_eq!(kinds, [Kind::Service, Kind::Slice, Kind::Node]);
}

#[test]
fn another_nodes_and_another_clusters_file_are_refused_by_name() {
    refused(
        &file_of(&Header::new("node-b", here(), at(0)), &lines()),
        "belongs to node \"node-b\"",
    );
    let other = Identity::new("https://192.0.2.1:6443", &[b"another".to_vec()]);
    refused(
        &file_of(&Header::new("node-a", other, at(0)), &lines()),
        "belongs to another cluster",
    );
}

#[test]
fn too_old_and_from_the_future_are_refused_and_a_clock_that_is_a_little_off_is_not() {
    let file = good();
    assert!(read_at(&file, at(0) + DAY).is_ok());
    let old = read_at(&file, at(1) + DAY).unwrap_err();
    assert!(old.contains("longer ago than --state-max-age"), "{old}");
    let slack = read_at(&file, at(0) - Duration::from_mins(4)).unwrap();
    assert_eq!(slack.age, Duration::ZERO);
    let ahead = read_at(&file, at(0) - Duration::from_mins(6)).unwrap_err();
    assert!(ahead.contains("in the future"), "{ahead}");
}

#[test]
fn a_file_with_a_right_sum_and_odd_content_is_refused_with_the_reason() {
    refused(&summed(b"{\"kubeProxyRsState\":2}\n"), "of form 2");
    refused(&summed(b"hello\n"), "does not begin as");
    refused(&summed(b""), "does not begin as");
    let mut body = good();
    body.truncate(body.len() - usize::try_from(SUM_LINE).unwrap());
    body.extend(b"{\"kind\":\"Pod\"}\n");
    refused(&summed(&body), "line 5");
    body.extend(b"no end");
    refused(&summed(&body[..body.len() - 15]), "damaged");
}

#[test]
fn a_line_that_never_ends_is_not_held() {
    let mut body = good();
    body.truncate(body.len() - usize::try_from(SUM_LINE).unwrap());
    body.extend(std::iter::repeat_n(b'x', 5 << 20));
    refused(&summed(&body), "larger than");
}

#[test]
fn a_file_that_claims_to_be_huge_is_refused_unread() {
    struct Huge;
    impl Read for Huge {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            panic!("read");
        }
    }
    impl Seek for Huge {
        fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
            Ok(1 << 40)
        }
    }
    let identity = here();
    let reader = Reader {
        node: "node-a",
        identity: &identity,
        max_age: DAY,
        now: at(0),
    };
    assert!(matches!(read(&mut Huge, &reader), Err(Refusal::TooLarge)));
}

#[test]
fn the_sum_names_the_content() {
    let sum = |bytes: &[u8]| claimed_sum(&mut Cursor::new(bytes)).unwrap();
    let later = file_of(&Header::new("node-a", here(), at(1)), &lines());
    assert_eq!(sum(&good()), sum(&good()));
    assert_ne!(sum(&good()), sum(&later));
}

proptest! {
    #[test]
    fn damaged_bytes_are_refused_and_never_panic(
        at_byte in any::<prop::sample::Index>(),
        to in any::<u8>(),
        cut in any::<prop::sample::Index>(),
        tail in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let whole = good();
        let mut changed = whole.clone();
        let at_byte = at_byte.index(whole.len());
        changed[at_byte] = to;
        prop_assert_eq!(read_at(&changed, at(60)).is_ok(), changed == whole);
        prop_assert!(read_at(&whole[..cut.index(whole.len())], at(60)).is_err());
        let longer = [&whole[..], &tail[..]].concat();
        prop_assert_eq!(read_at(&longer, at(60)).is_ok(), tail.is_empty());
        // And where somebody made the sum right again.
        let body = changed.len() - usize::try_from(SUM_LINE).unwrap();
        let _ = read_at(&summed(&changed[..body]), at(60));
    }
}
