//! Reading back.
//!
//! On `nf_tables` chain by chain: 55,000 chains take 1.4 to 2.4 s that way, a dump of the whole table 13.4 s and
//! `iptables-save` up to 50 s. Each chain is read as of one moment; the chains together
//! are not, so whoever needs that compares generations.

use super::{LONGEST_CALL, LiveKernel, Missing, reading};
use crate::nft::{self, ChainHead, Content};
use crate::probe::{SMALL_CALL, legacy_tables};
use crate::{
    ChainSink, FailureKind, LineSplitter, OBSERVED_TABLES, ObserveError, Scope, builtin_name, classify,
    empty_builtin,
};
use iptables::ast::{Chain, ChainName, Rule, TableName, Target};
use iptables::parse::{Piece, SaveParser};
use model::Family;
use std::collections::BTreeSet;

/// So many names are asked for one by one; beyond, all are listed at once.
const ONE_BY_ONE: usize = 500;

impl LiveKernel {
    pub(super) fn observe_nf_tables(
        &mut self,
        family: Family,
        scope: &Scope,
        sink: &mut ChainSink<'_>,
    ) -> Result<(), ObserveError> {
        let mut seen = Builtin::of(scope);
        for head in self.heads(family, scope)? {
            let chain = self.content(family, &head)?;
            seen.tick(head.table, &head.name);
            sink(head.table, head.name, chain);
        }
        seen.report_missing(sink);
        Ok(())
    }

    /// The chains in scope, in the order in which they are reported.
    fn heads(&mut self, family: Family, scope: &Scope) -> Result<Vec<ChainHead>, ObserveError> {
        let heads = self.with_socket(|socket| match scope {
            Scope::Chains(table, names) if names.len() <= ONE_BY_ONE => {
                let mut heads = Vec::new();
                for name in names {
                    heads.extend(nft::chain(socket, family, *table, name)?);
                }
                Ok(heads)
            }
            _ => nft::chains(socket, family),
        });
        let mut heads = heads.map_err(|error| reading(&format!("{family} chains"), &error))?;
        heads.retain(|head| match scope {
            Scope::Everything => OBSERVED_TABLES.contains(&head.table),
            Scope::Chains(table, names) => head.table == *table && names.contains(&head.name),
        });
        heads.sort_by(|a, b| (a.table, &a.name).cmp(&(b.table, &b.name)));
        Ok(heads)
    }

    fn content(&mut self, family: Family, head: &ChainHead) -> Result<Chain, ObserveError> {
        let content = self
            .with_socket(|socket| nft::content(socket, family, head))
            .map_err(|error| reading(&format!("the rules of {family} chain {}", head.name), &error))?;
        match content {
            Content::Told(chain) => Ok(chain),
            Content::WithoutWords => self.content_without_words(family, head),
            Content::OnlyByTool => match self.content_by_tool(family, head) {
                Err(error) if classify::has_no_words(&error.detail) => {
                    self.content_without_words(family, head)
                }
                told => told,
            },
        }
    }

    /// For chains of `nftables`' own kind in tables of iptables: other software writes such into `ip filter`. Rules that have
    /// no words in iptables are kept as what they are, and named by their handle.
    fn content_without_words(&mut self, family: Family, head: &ChainHead) -> Result<Chain, ObserveError> {
        let listed = self
            .with_socket(|socket| nft::rules(socket, family, head.table, &head.name))
            .map_err(|error| reading(&format!("the rules of {family} chain {}", head.name), &error))?;
        let rules = listed.into_iter().map(|listed| {
            let without_words = || Target::Other {
                name: "nft".into(),
                words: vec!["rule".into(), "handle".into(), listed.handle.to_string().into()],
            };
            listed.rule.unwrap_or_else(|_| Rule::new(without_words()))
        });
        Ok(Chain {
            policy: head.policy,
            rules: rules.collect(),
        })
    }

    /// For chains with a rule that this crate cannot tell exactly; they are strangers' nearly always.
    fn content_by_tool(&self, family: Family, head: &ChainHead) -> Result<Chain, ObserveError> {
        let tools = self.tools(family).map_err(Missing::for_observe)?;
        let mut args = tools.wait_flags().to_vec();
        args.extend(["-t", head.table.as_str(), "-S", head.name.as_str()]);
        let text = self
            .run(&tools.iptables, &args, "", SMALL_CALL)
            .map_err(|error| ObserveError {
                attempted: error.attempted,
                kind: error.kind,
                detail: error.detail,
            })?;
        let mut found = Chain {
            policy: head.policy,
            rules: Vec::new(),
        };
        let mut sink = |piece| {
            if let Piece::Chain(_, name, chain) = piece
                && name == head.name
            {
                found.rules.extend(chain.rules);
            }
        };
        let mut parser = SaveParser::new(family, &mut sink);
        parser.enter(head.table);
        text.lines().for_each(|line| parser.line(line));
        parser.finish();
        Ok(found)
    }

    pub(super) fn observe_legacy(
        &mut self,
        family: Family,
        scope: &Scope,
        sink: &mut ChainSink<'_>,
    ) -> Result<(), ObserveError> {
        let mut tables = match scope {
            Scope::Everything => OBSERVED_TABLES.to_vec(),
            Scope::Chains(table, _) => vec![*table],
        };
        // Its tool would make the others.
        let there = legacy_tables(family)?;
        tables.retain(|table| there.contains(table));
        let mut seen = Builtin::of(scope);
        for table in tables {
            self.save(family, table, &mut |table, name, chain| {
                let wanted = match scope {
                    Scope::Everything => true,
                    Scope::Chains(_, names) => names.contains(&name),
                };
                if wanted {
                    seen.tick(table, &name);
                    sink(table, name, chain);
                }
            })?;
        }
        seen.report_missing(sink);
        Ok(())
    }

    /// `-save -t TABLE`, parsed as it comes.
    fn save(&self, family: Family, table: TableName, sink: &mut ChainSink<'_>) -> Result<(), ObserveError> {
        let tools = self.tools(family).map_err(Missing::for_observe)?;
        let args = ["-t", table.as_str()];
        let mut pieces = |piece| {
            // A line that is not understood is a stranger's; what it stands for is not ours to judge.
            if let Piece::Chain(table, name, chain) = piece {
                sink(table, name, chain);
            }
        };
        let mut parser = SaveParser::new(family, &mut pieces);
        let mut lines = LineSplitter::default();
        let outcome = tools
            .save
            .invocation(&args, b"", &self.probe().environment, LONGEST_CALL)
            .run(&mut |bytes| lines.feed(bytes, &mut |line| parser.line(line)));
        lines.end(&mut |line| parser.line(line));
        parser.finish();
        let failed = |kind: FailureKind, detail: String| ObserveError {
            attempted: format!("{} {}", tools.save, args.join(" ")),
            kind,
            detail,
        };
        match outcome {
            Ok(finished) if finished.succeeded() => Ok(()),
            Ok(finished) => Err(failed(
                classify::tool_failure(&finished),
                classify::detail(&finished, ""),
            )),
            Err(error) => Err(failed(classify::run_failure(&error), error.words())),
        }
    }
}

/// The built-in chains in scope that have not been reported: they are there, even if the kernel keeps none yet.
struct Builtin {
    missing: BTreeSet<(TableName, ChainName)>,
}

impl Builtin {
    fn of(scope: &Scope) -> Builtin {
        let names = |table: TableName| {
            table
                .built_in()
                .iter()
                .map(move |name| (table, builtin_name(name)))
        };
        Builtin {
            missing: match scope {
                Scope::Everything => OBSERVED_TABLES.into_iter().flat_map(names).collect(),
                Scope::Chains(table, wanted) => {
                    names(*table).filter(|(_, name)| wanted.contains(name)).collect()
                }
            },
        }
    }

    fn tick(&mut self, table: TableName, name: &ChainName) {
        self.missing.remove(&(table, name.clone()));
    }

    fn report_missing(self, sink: &mut ChainSink<'_>) {
        for (table, name) in self.missing {
            sink(table, name, empty_builtin());
        }
    }
}
