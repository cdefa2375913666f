//! Tools that fail or dawdle when told to, in front of the real ones in `PATH`.

use std::fs;
use std::path::PathBuf;

/// A folder of stand-ins.
pub struct Stubs {
    folder: tempfile::TempDir,
}

/// What a stand-in does while its switch is on; otherwise it is the real tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misbehaviour {
    /// Fails after reading its input, with a message.
    Fails,
    /// Takes two seconds, then does its work.
    Dawdles,
    /// Does its work when its switch goes off.
    Hangs,
    /// Says that all went well, and does nothing.
    Pretends,
    /// Takes eight seconds, then does its work.
    Crawls,
    /// Fails when its input has this text, and does its work else.
    Refuses(&'static str),
}

impl Stubs {
    /// Stand-ins for these tools, all with their switches off.
    pub fn new(tools: &[&str], misbehaviour: Misbehaviour) -> Stubs {
        let stubs = Stubs {
            folder: tempfile::tempdir().expect("a scratch folder can be made"),
        };
        for tool in tools {
            let script = stubs.script(tool, misbehaviour);
            let file = stubs.file(tool);
            lab::live::put_program(&file, script.as_bytes());
        }
        stubs
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, tool: &str, misbehaviour: Misbehaviour) -> String {
        let (calls, switch) = (
            self.file(&format!("{tool}.calls")),
            self.file(&format!("{tool}.on")),
        );
        let act = match misbehaviour {
            Misbehaviour::Fails => "cat >/dev/null; echo \"$0: made to fail\" >&2; exit 1".to_owned(),
            Misbehaviour::Dawdles => "sleep 2".to_owned(),
            Misbehaviour::Hangs => format!("while [ -e {} ]; do sleep 0.2; done", switch.display()),
            Misbehaviour::Pretends => "cat >/dev/null; exit 0".to_owned(),
            Misbehaviour::Crawls => "sleep 8".to_owned(),
            Misbehaviour::Refuses(text) => format!(
                "input={input}.$$; cat >$input; if grep -qF {text} $input; then echo \"$0: made to refuse\" >&2; exit 1; fi; exec /usr/sbin/{tool} \"$@\" <$input",
                input = self.file("input").display(),
            ),
        };
        // The version is asked for at start, and answered in any case.
        format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) exec /usr/sbin/{tool} \"$@\";; esac\n\
             if [ -e {switch} ]; then echo call >>{calls}; {act}; fi\nexec /usr/sbin/{tool} \"$@\"\n",
            switch = switch.display(),
            calls = calls.display(),
        )
    }

    /// From now on it misbehaves.
    pub fn on(&self, tool: &str) {
        fs::write(self.file(&format!("{tool}.on")), "").expect("the scratch folder can be written to");
    }

    /// From now on it is the real tool.
    pub fn off(&self, tool: &str) {
        fs::remove_file(self.file(&format!("{tool}.on"))).expect("it was on");
    }

    /// How often it has misbehaved.
    pub fn calls(&self, tool: &str) -> usize {
        fs::read_to_string(self.file(&format!("{tool}.calls"))).map_or(0, |text| text.lines().count())
    }

    /// `PATH` with the stand-ins first.
    pub fn path(&self) -> String {
        let rest = std::env::var("PATH").unwrap_or_default();
        format!("{}:{rest}", self.folder.path().display())
    }
}
