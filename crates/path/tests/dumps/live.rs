//! Dumps in a real kernel: what it lists after they were loaded is read without loss, as text and as JSON, and sends packets
//! where the dumps themselves do.

use crate::loss::{assert_same_rules, lines, words};
use crate::packets::wrong;
use crate::{native, own_rules, saved};
use iptables::ast::Ruleset;
use iptables::render::SaveText;
use lab::Scratch;
use model::{Family, PerFamily};
use nftables::listed;
use scenario::Dump;
use std::io::Write as _;
use std::process::Output;

/// A network namespace, with the links and sets that a dump names.
struct Namespace(Scratch);

impl Namespace {
    /// A new one; `None`, said aloud, where there can be none. With `KPRS_REQUIRE_LIVE` set that is a failure.
    fn of(dump: &Dump) -> Option<Namespace> {
        let scratch = Scratch::new("dump")?;
        for link in &dump.expect.links {
            scratch.must(&["ip", "link", "add", link, "type", "bridge"], "");
        }
        let Some(sets) = &dump.ipsets else {
            return Some(Namespace(scratch));
        };
        let output = scratch.run(&["ipset", "restore"], sets);
        if output.status.success() {
            return Some(Namespace(scratch));
        }
        skipped(&format!("the sets of {}", dump.name), &said(&output))
    }

    fn run(&self, tool: &[&str], input: &str) -> Output {
        self.0.run(tool, input)
    }

    fn must(&self, tool: &[&str], input: &str) -> String {
        self.0.must(tool, input)
    }

    /// Loads rules; `None`, said aloud, when this kernel lacks what they need.
    fn load(&self, tool: &[&str], rules: &str, whose: &str) -> Option<()> {
        let output = self.run(tool, rules);
        let said = said(&output);
        if output.status.success() {
            return Some(());
        }
        let lacks = [
            "missing kernel module",
            "Couldn't load match",
            "Couldn't load target",
            "not supported",
        ];
        assert!(
            lacks.iter().any(|words| said.contains(words)),
            "{whose}, {tool:?}: {said}"
        );
        skipped(whose, &said)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn skipped<T>(what: &str, why: &str) -> Option<T> {
    lab::live::skip(&format!("{what} cannot be had: {why}"));
    None
}

/// Past the capture of the test harness: what is left out has to be seen.
fn say(text: &str) {
    _ = writeln!(std::io::stderr(), "{text}");
}

fn program(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// Lines of a listing but for built-in chains that no rule is in: which of them are there differs from tool to tool.
fn filled(text: &str) -> Vec<String> {
    let empty = |line: &String| line.contains(" :") && !line.contains(" - [");
    lines(text).into_iter().filter(|line| !empty(line)).collect()
}

fn check_saved(dump: &Dump, kind: &str) -> Option<()> {
    let namespace = Namespace::of(dump)?;
    let mut listed_by_iptables: PerFamily<Ruleset> = PerFamily::default();
    for family in Family::ALL {
        let Some(text) = dump.saved.get(family) else {
            continue;
        };
        let whose = format!("{} {family}", dump.name);
        let ruleset = saved(&whose, text, family);
        let printed = SaveText::new(&ruleset, family).to_string();
        let program = program(family);
        namespace.load(&[&format!("{program}-{kind}-restore")], &printed, &whose)?;
        let save = namespace.must(&[&format!("{program}-{kind}-save")], "");
        let again = saved(&whose, &save, family);
        assert_eq!(
            lines(&SaveText::new(&again, family).to_string()),
            lines(&save),
            "{whose} {kind}"
        );
        assert_eq!(filled(&save), filled(&printed), "{whose} {kind}");
        *listed_by_iptables.get_mut(family) = again;
    }
    let wrong = wrong_without_tables_of_nft(dump, &listed_by_iptables);
    assert!(wrong.is_empty(), "{kind}: {}", wrong.join("\n"));
    if kind == "nft" {
        check_lists(dump, &namespace, None);
    }
    Some(())
}

/// A folder with tables of nftables as well has them as they are written.
fn wrong_without_tables_of_nft(dump: &Dump, own: &PerFamily<Ruleset>) -> Vec<String> {
    let tables = dump.text.as_ref().map(|text| native(&dump.name, text));
    wrong(dump, "as saved", own, &tables.unwrap_or_default())
}

/// What `nft` lists, as text and as JSON: read, printed back, and the same rules in both.
fn check_lists(dump: &Dump, namespace: &Namespace, own: Option<&PerFamily<Ruleset>>) {
    let text = namespace.must(&["nft", "list", "ruleset"], "");
    let of_text = native(&dump.name, &text);
    assert_eq!(plain(&of_text.to_string()), plain(&text), "{}", dump.name);
    let json = namespace.must(&["nft", "-j", "list", "ruleset"], "");
    let of_json = native(&dump.name, &json);
    assert_eq!(native(&dump.name, &of_json.to_string()), of_json, "{}", dump.name);
    let Some(own) = own else { return };
    assert_same_rules(&dump.name, &of_text, &of_json);
    let asked = [("listed", &of_text), ("listed as JSON", &of_json)];
    let wrong: Vec<String> = asked
        .into_iter()
        .flat_map(|(how, native): (_, &listed::Ruleset)| wrong(dump, how, own, native))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A list's words, where `nft` has two for one thing: rules that `iptables` made are listed with words for signs, and with
/// `mark` for `meta mark`.
fn plain(list: &str) -> String {
    let word = |word: String| match &*word {
        "and" => "&".to_owned(),
        "or" => "|".to_owned(),
        "xor" => "^".to_owned(),
        _ => word,
    };
    let all: Vec<String> = words(list).into_iter().map(word).collect();
    all.join(" ").replace("meta mark", "mark")
}

fn check_listed(dump: &Dump) -> Option<()> {
    let text = dump.text.as_ref()?;
    let namespace = Namespace::of(dump)?;
    let printed = native(&dump.name, text).to_string();
    namespace.load(&["nft", "-f", "-"], &printed, &dump.name)?;
    check_lists(dump, &namespace, Some(&own_rules(dump)));
    Some(())
}

/// At least so many folders have no `not_loaded`: what these tests leave out stays the exception.
const NOT_LEFT_OUT: usize = 30;

#[test]
fn what_iptables_saves_after_a_load_is_read_without_loss() {
    let dumps = scenario::dumps();
    let all: Vec<&Dump> = dumps
        .iter()
        .filter(|dump| dump.saved.v4.is_some() || dump.saved.v6.is_some())
        .collect();
    assert!(all.len() >= 18, "only {}", all.len());
    for dump in all {
        for kind in ["nft", "legacy"] {
            check_saved(dump, kind);
        }
    }
}

#[test]
fn what_nft_lists_after_a_load_is_read_without_loss() {
    let dumps = scenario::dumps();
    let mut left_out = 0;
    for dump in dumps.iter().filter(|dump| dump.text.is_some()) {
        match &dump.expect.not_loaded {
            Some(why) => {
                left_out += 1;
                say(&format!("not loaded: {}: {why}", dump.name));
            }
            None => drop(check_listed(dump)),
        }
    }
    assert!(
        dumps.len() - left_out >= NOT_LEFT_OUT,
        "{left_out} of {} left out",
        dumps.len()
    );
}
