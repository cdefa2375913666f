//! Reading manifests once. Following them is tested in `tests/manifests.rs` and `tests/manifests_held.rs`.

use super::{Reading, read_path, read_str};
use std::fmt::Write as _;
use std::fs;

fn names(reading: &Reading) -> Vec<String> {
    reading
        .objects
        .iter()
        .map(|object| format!("{:?}", object.reference()))
        .collect()
}

fn count(reading: &Reading) -> (usize, usize) {
    (reading.objects.len(), reading.errors.len())
}

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\nspec: {{clusterIP: 10.96.0.1, ports: [{{port: 80}}]}}\n"
    )
}

/// The shape of `kubectl get svc,nodes -A -o yaml`: fields sorted, the list's kind behind its items.
fn kubectl_list(services: usize) -> String {
    let mut text = "apiVersion: v1\nitems:\n".to_owned();
    for i in 0..services {
        write!(
            text,
            "- apiVersion: v1\n  kind: Service\n  metadata:\n    name: s{i}\n    namespace: default\n  spec:\n    clusterIP: 10.96.0.{i}\n    ports:\n    - port: 80\n      protocol: TCP\n"
        )
        .unwrap();
    }
    text + "- apiVersion: v1\n  kind: Node\n  metadata:\n    name: node-a\nkind: List\nmetadata:\n  resourceVersion: \"\"\n"
}

#[test]
fn documents_of_one_file_are_all_read() {
    let text = format!(
        "# head\n---\n{}---\n# nothing\n---\n{}---\nkind: ConfigMap\napiVersion: v1\nmetadata: {{name: c}}\n",
        service("a"),
        service("b")
    );
    let reading = read_str("f.yaml", &text);
    assert_eq!(count(&reading), (2, 0), "{reading:?}");
    assert_eq!(reading.not_read.len(), 1);
    assert_eq!(reading.not_read[0].kind, "ConfigMap");
}

#[test]
fn a_list_of_kubectl_is_read_item_by_item() {
    let reading = read_str("f.yaml", &kubectl_list(3));
    assert_eq!(count(&reading), (4, 0), "{reading:?}");
    assert!(names(&reading)[3].contains("node-a"));
}

#[test]
fn items_of_a_typed_list_need_no_kind_of_their_own() {
    let item = r#"{"metadata":{"name":"a","namespace":"x"},"spec":{"clusterIP":"10.96.0.1"}}"#;
    let first = format!(r#"{{"kind":"ServiceList","apiVersion":"v1","items":[{item}]}}"#);
    let last = format!(r#"{{"items":[{item}],"kind":"ServiceList","apiVersion":"v1"}}"#);
    for text in [first, last] {
        let reading = read_str("f.json", &text);
        assert_eq!(count(&reading), (1, 0), "{text}: {reading:?}");
        assert!(names(&reading)[0].contains("Service("), "{reading:?}");
    }
}

#[test]
fn a_list_in_a_list_is_read() {
    let text = format!(
        r#"{{"kind":"List","apiVersion":"v1","items":[{{"kind":"List","apiVersion":"v1","items":[{0}]}},{0}]}}"#,
        r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}"#
    );
    let reading = read_str("f.json", &text);
    assert_eq!(count(&reading), (1, 0));
    assert_eq!(reading.doubles.len(), 1, "{reading:?}");
}

#[test]
fn a_kubectl_list_cut_off_anywhere_is_an_error() {
    let text = kubectl_list(3);
    for (end, _) in text
        .char_indices()
        .filter(|(end, _)| *end > 15 && *end < text.find("kind: List").unwrap() + 10)
    {
        let reading = read_str("f.yaml", &text[..end]);
        assert_eq!(
            reading.errors.len(),
            1,
            "cut at {end}: {:?}\n{reading:?}",
            &text[..end]
        );
    }
}

#[test]
fn json_cut_off_anywhere_is_an_error() {
    let text = r#"{"apiVersion":"v1","items":[{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"}}],"kind":"List"}"#;
    for end in 1..text.len() {
        assert_ne!(
            read_str("f.json", &text[..end]).errors.len(),
            0,
            "{}",
            &text[..end]
        );
    }
    assert_eq!(count(&read_str("f.json", text)), (1, 0));
}

#[test]
fn an_error_names_file_document_line_and_reason() {
    let text = format!(
        "{}---\nkind: Service\nmetadata:\n  name: a\n name: b\n",
        service("a")
    );
    let reading = read_str("dir/f.yaml", &text);
    assert_eq!(count(&reading), (1, 1), "{reading:?}");
    let line = crate::chain(&reading.errors[0]);
    assert!(line.starts_with("dir/f.yaml, document 2: "), "{line}");
    assert!(line.contains("line 9") && !line.contains('\n'), "{line}");

    let reading = read_str("f.json", "{\"kind\":\"Service\",\n \"metadata\":{]}");
    let line = crate::chain(&reading.errors[0]);
    assert!(
        line.contains("f.json, document 1") && line.contains("line 2 column 14"),
        "{line}"
    );
}

#[test]
fn what_is_no_object_is_an_error() {
    for text in [
        "just text\n",
        "- a\n- b\n",
        "7\n",
        "a: 1\n",
        "items: 7\nkind: List\n",
        "kind: 7\n",
    ] {
        let reading = read_str("f.yaml", text);
        assert_eq!(count(&reading), (0, 1), "{text:?}: {reading:?}");
    }
    for text in [
        "",
        "# nothing\n",
        "---\n---\n",
        "null\n",
        "items: null\nkind: List\n",
        "{}",
    ] {
        assert_eq!(count(&read_str("f.yaml", text)), (0, 0), "{text:?}");
    }
}

#[test]
fn yaml_may_begin_with_a_brace() {
    let text = "{kind: Node, apiVersion: v1, metadata: {name: node-a}}\n";
    let reading = read_str("f.yaml", text);
    assert_eq!(count(&reading), (1, 0), "{reading:?}");
}

#[test]
fn a_bad_object_harms_only_itself() {
    let text = format!(
        "{}---\nkind: Service\nmetadata: {{name: Not_A_Name}}\n---\n{}",
        service("a"),
        service("b")
    );
    let reading = read_str("f.yaml", &text);
    assert_eq!(count(&reading), (2, 0));
    assert_eq!(reading.notes.len(), 1, "{reading:?}");
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "kind: Service\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        writeln!(text, "a{i}: &a{i} [{list}]").unwrap();
    }
    assert_eq!(count(&read_str("f.yaml", &text)), (0, 1));
}

#[test]
fn the_last_file_counts_for_an_object_in_two() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(
        dir.path().join("b.yaml"),
        service("a").replace("10.96.0.1", "10.96.0.2"),
    )
    .unwrap();
    fs::write(dir.path().join("a.yaml"), service("a")).unwrap();
    fs::write(dir.path().join(".hidden.yaml"), service("h")).unwrap();
    fs::write(dir.path().join("readme.md"), "no").unwrap();
    let reading = read_path(dir.path()).unwrap();
    assert_eq!(count(&reading), (1, 0));
    assert!(format!("{:?}", reading.objects).contains("10.96.0.2"));
    assert!(
        reading.doubles[0].starts_with("Service default/a is in "),
        "{:?}",
        reading.doubles
    );
    assert!(
        reading.doubles[0].contains("a.yaml and in "),
        "{:?}",
        reading.doubles
    );
}

#[test]
fn a_missing_path_and_an_empty_folder_say_so() {
    let line = crate::chain(&read_path("/nonexistent/m.yaml".as_ref()).unwrap_err());
    assert!(
        line.contains("/nonexistent/m.yaml") && line.contains("No such file"),
        "{line}"
    );
    let dir = tempfile::tempdir().unwrap();
    let line = crate::chain(&read_path(dir.path()).unwrap_err());
    assert!(line.contains("no file in it ends in .yaml"), "{line}");
}

/// As Go's YAML, which `kubectl` uses, has it: a bare `n` is false. kubectl prints such names in quotes.
#[test]
fn a_bare_n_is_no_name() {
    let text = |name: &str| format!("kind: Node\nmetadata:\n  name: {name}\n");
    assert_eq!(count(&read_str("f.yaml", &text("n"))), (0, 0));
    assert_eq!(count(&read_str("f.yaml", &text("\"n\""))), (1, 0));
}

#[test]
fn a_pipe_among_manifests_is_left_out_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("good.yaml"), service("a")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe.yaml"))
        .status();
    assert!(made.unwrap().success());
    let path = folder.path().to_owned();
    let (say, said) = std::sync::mpsc::channel();
    std::thread::spawn(move || say.send(read_path(&path).unwrap()));
    let reading = said.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    assert_eq!(count(&reading), (1, 1), "{reading:?}");
}

#[test]
fn a_file_that_is_gone_while_somebody_is_at_it_keeps_what_it_said() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    fs::write(&a, service("a")).unwrap();
    fs::write(&b, service("b")).unwrap();
    let mut folder = super::folder::Folder::new(dir.path().to_owned(), "n".into());
    let mut scan = |restless: &[&std::path::PathBuf]| {
        let restless = restless.iter().map(|path| (*path).clone()).collect();
        let mut said = Vec::new();
        let scan = folder.scan(&restless, &mut |event| {
            if let crate::SourceEvent::Change(change) = event {
                said.push(format!("{change:?}"));
            }
            Ok::<(), ()>(())
        });
        scan.unwrap().unwrap();
        said
    };
    assert_eq!(scan(&[]).len(), 2);
    fs::remove_file(&a).unwrap();
    fs::remove_file(&b).unwrap();
    let deleted =
        |name: &str| format!("Delete(Service(ServiceName {{ namespace: \"default\", name: \"{name}\" }}))");
    assert_eq!(scan(&[&a]), [deleted("b")]);
    assert_eq!(scan(&[]), [deleted("a")]);
}

#[test]
fn another_folder_counts_at_the_second_look_at_which_nobody_is_at_it_with_all_that_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let fill = |ip: u8| {
        fs::create_dir(&path).unwrap();
        let text = service("a").replace("10.96.0.1", &format!("10.96.0.{ip}"));
        fs::write(path.join("a.yaml"), text).unwrap();
    };
    let mut folder = super::folder::Folder::new(path.clone(), "n".into());
    let mut scan = |restless: &[&str]| {
        let restless = restless.iter().map(|name| path.join(name)).collect();
        let mut said = Vec::new();
        let scan = folder.scan(&restless, &mut |event| {
            if let crate::SourceEvent::Change(change) = event {
                said.push(format!("{change:?}"));
            }
            Ok::<(), ()>(())
        });
        scan.unwrap().map(|_| said).map_err(|error| error.to_string())
    };
    fill(1);
    assert_eq!(scan(&[]).unwrap().len(), 1);
    fs::rename(&path, dir.path().join("before")).unwrap();
    fill(2);
    for restless in [&[][..], &["b.yaml"], &["a.yaml", "b.yaml"]] {
        let why = scan(restless).unwrap_err();
        assert!(why.contains("may still be writing"), "{restless:?}: {why}");
    }
    let said = scan(&[]).unwrap();
    assert!(said.len() == 1 && said[0].contains("10.96.0.2"), "{said:?}");
}
