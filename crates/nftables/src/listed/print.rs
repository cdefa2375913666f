//! The words of `nft list`: what is printed reads back as itself, and as what was read.

use super::{
    Base, Chain, Contents, Element, Expr, Nat, NumberMode, Op, Policy, Rule, Ruleset, Set, Statement, Table,
    TableFamily, Type, Value, Verdict,
};
use std::fmt::{self, Display};

/// A rule in the words of `nft list`.
pub struct RuleText<'a>(pub &'a Rule);

impl Display for RuleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.0.statements.iter().map(ToString::to_string).collect();
        words.extend(
            self.0
                .comment
                .iter()
                .map(|comment| format!("comment \"{comment}\"")),
        );
        f.write_str(&words.join(" "))
    }
}

impl Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tables.iter().try_for_each(|table| write!(f, "{table}"))
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} {} {{", self.family.as_str(), self.name)?;
        if !self.flags.is_empty() {
            writeln!(f, "\tflags {}", self.flags.join(","))?;
        }
        if let Some(comment) = &self.comment {
            writeln!(f, "\tcomment \"{comment}\"")?;
        }
        for object in &self.objects {
            writeln!(f, "\t{} {{", object.head)?;
            for line in &object.body {
                writeln!(f, "\t\t{line}")?;
            }
            writeln!(f, "\t}}")?;
        }
        for set in &self.sets {
            write!(f, "{set}")?;
        }
        for chain in &self.chains {
            print_chain(f, self.family, chain)?;
        }
        writeln!(f, "}}")
    }
}

impl Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.data.is_some() { "map" } else { "set" };
        writeln!(f, "\t{what} {} {{", self.name)?;
        let word = match self.key {
            Type::Named(_) => "type",
            Type::Like(_) => "typeof",
        };
        match &self.data {
            Some(data) => writeln!(f, "\t\t{word} {} : {data}", self.key)?,
            None => writeln!(f, "\t\t{word} {}", self.key)?,
        }
        for words in self.words.iter().filter(|words| words.starts_with("size ")) {
            writeln!(f, "\t\t{words}")?;
        }
        if !self.flags.is_empty() {
            writeln!(f, "\t\tflags {}", self.flags.join(","))?;
        }
        for words in self.words.iter().filter(|words| !words.starts_with("size ")) {
            writeln!(f, "\t\t{words}")?;
        }
        if let Some(comment) = &self.comment {
            writeln!(f, "\t\tcomment \"{comment}\"")?;
        }
        match &self.elements {
            Contents::Listed(elements) if elements.is_empty() => {}
            Contents::Listed(elements) => {
                let elements: Vec<String> = elements.iter().map(ToString::to_string).collect();
                writeln!(f, "\t\telements = {{ {} }}", elements.join(",\n\t\t\t     "))?;
            }
            Contents::NotListed => {}
        }
        writeln!(f, "\t}}\n")
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Named(parts) => f.write_str(&parts.join(" . ")),
            Type::Like(words) => f.write_str(words),
        }
    }
}

impl Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        self.words.iter().try_for_each(|words| write!(f, " {words}"))?;
        if let Some(comment) = &self.comment {
            write!(f, " comment \"{comment}\"")?;
        }
        match &self.data {
            Some(data) => write!(f, " : {data}"),
            None => Ok(()),
        }
    }
}

fn print_chain(f: &mut fmt::Formatter<'_>, family: TableFamily, chain: &Chain) -> fmt::Result {
    writeln!(f, "\tchain {} {{", chain.name)?;
    if let Some(comment) = &chain.comment {
        writeln!(f, "\t\tcomment \"{comment}\"")?;
    }
    if let Some(base) = &chain.base {
        print_base(f, family, base)?;
    }
    for rule in &chain.rules {
        writeln!(f, "\t\t{}", RuleText(rule))?;
    }
    writeln!(f, "\t}}\n")
}

fn print_base(f: &mut fmt::Formatter<'_>, family: TableFamily, base: &Base) -> fmt::Result {
    write!(f, "\t\ttype {} hook {}", base.kind, base.hook)?;
    match base.devices.as_slice() {
        [] => {}
        [one] => write!(f, " device \"{one}\"")?,
        more => {
            let names: Vec<String> = more.iter().map(|name| format!("\"{name}\"")).collect();
            write!(f, " devices = {{ {} }}", names.join(", "))?;
        }
    }
    let policy = match base.policy {
        Policy::Accept => "accept",
        Policy::Drop => "drop",
    };
    writeln!(f, " priority {}; policy {policy};", priority(family, base))
}

/// A base chain's priority: by the name of one that is at most 10 away and belongs to the hook, else as a number
/// (`prio2str` of nft's `rule.c`).
fn priority(family: TableFamily, base: &Base) -> String {
    let near = names_of_priorities(family, &base.hook)
        .into_iter()
        .find_map(|(name, at)| {
            let offset = base.priority.checked_sub(at)?;
            (-10..=10).contains(&offset).then_some((name, offset))
        });
    match near {
        Some((name, 0)) => name.to_owned(),
        Some((name, offset)) if offset > 0 => format!("{name} + {offset}"),
        Some((name, offset)) => format!("{name} - {}", -offset),
        None => base.priority.to_string(),
    }
}

/// The named priorities of a hook.
fn names_of_priorities(family: TableFamily, hook: &str) -> Vec<(&'static str, i32)> {
    match family {
        TableFamily::Bridge => {
            let mut all = vec![("filter", -200)];
            all.extend((hook == "prerouting").then_some(("dstnat", -300)));
            all.extend((hook == "output").then_some(("out", 100)));
            all.extend((hook == "postrouting").then_some(("srcnat", 300)));
            all
        }
        TableFamily::Arp | TableFamily::Netdev => vec![("filter", 0)],
        TableFamily::Ip | TableFamily::Ip6 | TableFamily::Inet => {
            let mut all = vec![("raw", -300), ("mangle", -150), ("filter", 0), ("security", 50)];
            all.extend((hook == "prerouting").then_some(("dstnat", -100)));
            all.extend((hook == "postrouting").then_some(("srcnat", 100)));
            all
        }
    }
}

/// The priority of a name, at whatever hook: newer versions of `nft` have names at more hooks (`dstnat` at output), and
/// print them there.
pub(crate) fn priority_named(family: TableFamily, name: &str) -> Option<i32> {
    let hooks = ["prerouting", "output", "postrouting"].into_iter();
    let mut all = hooks.flat_map(|hook| names_of_priorities(family, hook));
    all.find_map(|(known, at)| (known == name).then_some(at))
}

impl Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Match {
                left,
                op: Op::Is,
                right,
            } => write!(f, "{left} {right}"),
            Statement::Match { left, op, right } => write!(f, "{left} {} {right}", op.as_str()),
            Statement::Verdict(verdict) => write!(f, "{verdict}"),
            Statement::VerdictMap { key, map } => write!(f, "{key} vmap {map}"),
            Statement::Assign { to, value } => write!(f, "{to} set {value}"),
            Statement::Nat(nat) => write!(f, "{nat}"),
            Statement::Reject(with) if with.is_empty() => f.write_str("reject"),
            Statement::Reject(with) => write!(f, "reject with {with}"),
            Statement::Update(update) => {
                write!(
                    f,
                    "{} @{} {{ {} }}",
                    update.op.as_str(),
                    update.set,
                    update.element
                )
            }
            Statement::NoTrack => f.write_str("notrack"),
            Statement::Inert(words) | Statement::Open(words) | Statement::Unknown(words) => {
                f.write_str(words)
            }
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Accept => f.write_str("accept"),
            Verdict::Drop => f.write_str("drop"),
            Verdict::Continue => f.write_str("continue"),
            Verdict::Return => f.write_str("return"),
            Verdict::Jump(chain) => write!(f, "jump {chain}"),
            Verdict::Goto(chain) => write!(f, "goto {chain}"),
            Verdict::Queue(words) => f.write_str(words),
        }
    }
}

impl Display for Nat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.as_str())?;
        self.family.iter().try_for_each(|word| write!(f, " {word}"))?;
        match (&self.to, &self.port) {
            (None, None) => {}
            (Some(to), None) => write!(f, " to {to}")?,
            (None, Some(port)) => write!(f, " to :{port}")?,
            (Some(Expr::Value(Value::Address(ip))), Some(port)) if ip.is_ipv6() => {
                write!(f, " to [{ip}]:{port}")?;
            }
            (Some(to), Some(port)) => write!(f, " to {to}:{port}")?,
        }
        if !self.flags.is_empty() {
            write!(f, " {}", self.flags.join(","))?;
        }
        Ok(())
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(number) => write!(f, "{number}"),
            Value::Mark(mark) => write!(f, "{mark:#010x}"),
            Value::Address(ip) => write!(f, "{ip}"),
            Value::Network(net) => write!(f, "{net}"),
            Value::Word(word) => f.write_str(word),
            Value::Quoted(word) => write!(f, "\"{word}\""),
        }
    }
}

impl Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expr::Value(value) => write!(f, "{value}"),
            Expr::Field(words) => f.write_str(&words.join(" ")),
            Expr::Concat(parts) => f.write_str(&joined(parts, " . ")),
            Expr::Range(ends) => write!(f, "{}-{}", ends.0, ends.1),
            Expr::List(parts) => f.write_str(&joined(parts, ",")),
            Expr::Masked(both) => write!(f, "{} / {}", both.0, both.1),
            Expr::Set(elements) => {
                let elements: Vec<String> = elements.iter().map(ToString::to_string).collect();
                write!(f, "{{ {} }}", elements.join(", "))
            }
            Expr::Named(name) => write!(f, "@{name}"),
            Expr::Map(both) => write!(f, "{} map {}", both.0, both.1),
            Expr::Binary(op, both) => {
                let right = match &both.1 {
                    Expr::Binary(..) => format!("({})", both.1),
                    right => right.to_string(),
                };
                write!(f, "{} {} {right}", both.0, op.as_str())
            }
            Expr::Number {
                mode,
                modulus,
                offset,
            } => {
                let mode = match mode {
                    NumberMode::Random => "random",
                    NumberMode::Increment => "inc",
                };
                write!(f, "numgen {mode} mod {modulus}")?;
                print_offset(f, *offset)
            }
            Expr::Hash {
                of,
                modulus,
                seed,
                offset,
            } => {
                match of {
                    Some(of) => write!(f, "jhash {of} mod {modulus}")?,
                    None => write!(f, "symhash mod {modulus}")?,
                }
                if let Some(seed) = seed {
                    write!(f, " seed {seed:#x}")?;
                }
                print_offset(f, *offset)
            }
            Expr::Verdict(verdict) => write!(f, "{verdict}"),
        }
    }
}

fn print_offset(f: &mut fmt::Formatter<'_>, offset: u32) -> fmt::Result {
    match offset {
        0 => Ok(()),
        offset => write!(f, " offset {offset}"),
    }
}

fn joined(parts: &[Expr], by: &str) -> String {
    let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
    parts.join(by)
}
