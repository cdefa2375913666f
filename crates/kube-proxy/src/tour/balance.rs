//! Replicas: whether chance is fair.

use super::names::slice;
use super::stage::Stage;
use super::step::{Heard, Step};
use super::{APP, Mode, POD};
use anyhow::Result;
use serde_json::Value;

/// How many replicas are tried, how many connections are made to them, and what chi-square may be: with fair chances
/// it is more once in ten million times (the quantiles for one, two and nine degrees of freedom).
const TRIES: [(usize, usize, f64); 3] = [(2, 400, 28.37), (3, 600, 32.24), (10, 2000, 50.17)];

/// Replicas.
///
/// # Errors
/// When the lab fails.
pub fn replicas(stage: &mut Stage) -> Result<Step> {
    let chances = match stage.mode {
        Mode::Iptables => {
            "Of n endpoints, the first is taken with chance 1/n, the second with 1/(n-1) of what is left, and so on: each \
             has the same share."
        }
        Mode::Nftables => {
            "A die is thrown that has as many sides as there are slots; where it shows an empty one it is thrown again, so \
             each endpoint has the same share."
        }
    };
    let told = format!(
        "The Service app is scaled. {chances} Every connection is decided anew, none is moved. Whether the counts are \
         those of fair chances is told by chi-square, whose bound fair chances break once in ten million times."
    );
    let mut step = Step::new("Two, three and ten replicas share the connections evenly", &told);
    for (count, connections, bound) in TRIES {
        stage.change(|items| {
            items.retain(|item| !is_slice_of_app(item));
            items.push(slice(count));
        })?;
        let heard = stage.ask(&mut step, POD, APP, connections)?;
        let (counts, strangers) = counts(&heard, count);
        step.same(
            &format!("{count} replicas: answers of others, or none"),
            0,
            strangers,
        );
        let found = chi_square(&counts);
        let spread = format!("{} to {}", least(&counts), most(&counts));
        step.fact(
            &format!("{count} replicas: connections of each, of {connections}"),
            format!("about {}", connections / count),
            spread,
            counts.iter().all(|one| *one > 0),
        );
        step.fact(
            &format!("{count} replicas: chi-square"),
            format!("at most {bound}"),
            format!("{found:.2}"),
            found <= bound,
        );
    }
    step.look_at(
        "kube-proxy balances connections, not requests and not load: a client that keeps one connection open keeps one pod, \
         however many replicas are added (HTTP/2, gRPC, pools of database connections).",
    );
    Ok(step)
}

fn is_slice_of_app(item: &Value) -> bool {
    item["kind"] == "EndpointSlice" && item["metadata"]["name"] == "app-1"
}

/// Answers of `app-0` and so on, and of whoever else.
fn counts(heard: &Heard, replicas: usize) -> (Vec<usize>, usize) {
    let by = heard.by();
    let of = |number: usize| by.get(&*format!("app-{number}")).copied().unwrap_or_default();
    let counts: Vec<usize> = (0..replicas).map(of).collect();
    let all: usize = by.values().sum();
    let others = all - counts.iter().sum::<usize>();
    (counts, others)
}

fn least(counts: &[usize]) -> usize {
    counts.iter().copied().min().unwrap_or_default()
}

fn most(counts: &[usize]) -> usize {
    counts.iter().copied().max().unwrap_or_default()
}

/// How far counts are from all being the same.
#[allow(clippy::cast_precision_loss, reason = "counts of some thousands")]
fn chi_square(counts: &[usize]) -> f64 {
    if counts.iter().all(|count| *count == 0) {
        return f64::INFINITY;
    }
    let expected = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    let of = |count: &usize| (*count as f64 - expected).powi(2) / expected;
    counts.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::{TRIES, chi_square};

    #[test]
    fn chances_that_are_not_fair_are_beyond_the_bound() {
        assert!((chi_square(&[210, 190]) - 1.0).abs() < 1e-9);
        for (count, connections, bound) in TRIES {
            let share = connections / count;
            let mut counts = vec![share; count];
            assert!(chi_square(&counts) <= bound);
            // The last endpoint gets nothing, and the one before it what was the last one's.
            counts[count - 1] = 0;
            counts[count - 2] = 2 * share;
            assert!(chi_square(&counts) > bound, "{count}");
            // One is taken twice as often as the others.
            let unit = connections / (count + 1);
            let mut counts = vec![unit; count];
            counts[0] = 2 * unit;
            assert!(chi_square(&counts) > bound, "{count}");
        }
    }
}
