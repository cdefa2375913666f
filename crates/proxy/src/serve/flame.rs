//! Samples as a picture: each box is a function, as wide as the time it was on the stack, over the one that called it.
//! Pointing at a box shows its whole name and share.

use super::profile::{Place, Samples};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Of the picture, in its own units.
const WIDTH: f64 = 1200.0;
/// Of a row.
const HEIGHT: usize = 17;
/// Narrower boxes are left out.
const NARROWEST: f64 = 0.3;
/// Of a letter, about.
const LETTER: f64 = 6.5;

/// A function on the stack, and those that it called.
#[derive(Default)]
struct Call {
    samples: u64,
    calls: BTreeMap<String, Call>,
}

impl Call {
    fn add(&mut self, stack: &[&str], samples: u64) {
        self.samples += samples;
        if let [first, rest @ ..] = stack {
            let call = self.calls.entry((*first).to_owned()).or_default();
            call.add(rest, samples);
        }
    }

    fn depth(&self) -> usize {
        self.calls
            .values()
            .map(|call| 1 + call.depth())
            .max()
            .unwrap_or(0)
    }
}

/// The picture.
pub(super) fn draw(samples: &Samples) -> String {
    let mut root = Call::default();
    for ((thread, places), times) in &samples.stacks {
        let callers = places
            .iter()
            .rev()
            .map(|Place { function, .. }| function.as_str());
        let stack: Vec<&str> = [thread.as_str()].into_iter().chain(callers).collect();
        root.add(&stack, *times);
    }
    let height = (root.depth() + 2) * HEIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <text x=\"4\" y=\"13\">kube-proxy: {} samples in {} s, each {} ms of processor time</text>\n",
        root.samples,
        samples.took.as_secs(),
        Samples::period().as_millis()
    );
    let whole = share(root.samples, 1);
    row(&mut svg, &root, (0.0, height - HEIGHT), whole.max(1.0));
    svg.push_str("</svg>\n");
    svg
}

fn share(samples: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "samples are counted to a few thousand")]
    let share = samples as f64 / whole as f64;
    share
}

/// Draws what `call` called, from left to right, in the row that ends at `at`.
fn row(svg: &mut String, call: &Call, at: (f64, usize), whole: f64) {
    let (mut left, bottom) = at;
    for (name, inner) in &call.calls {
        let part = share(inner.samples, 1) / whole;
        let width = part * WIDTH;
        if width >= NARROWEST {
            draw_box(svg, name, (left, bottom - HEIGHT + 1), (width, part));
            row(svg, inner, (left, bottom - HEIGHT), whole);
        }
        left += width;
    }
}

fn draw_box(svg: &mut String, name: &str, (x, y): (f64, usize), (width, part): (f64, f64)) {
    // The same name has the same colour wherever it stands.
    let hue = name
        .bytes()
        .fold(0_u32, |sum, byte| (sum * 31 + u32::from(byte)) % 60);
    let percent = part * 100.0;
    let room = width / LETTER;
    let mut letters = 0.0;
    let fits = |_: &char| {
        letters += 1.0;
        letters < room
    };
    let label: String = name.chars().take_while(fits).collect();
    let _ = writeln!(
        svg,
        "<g><title>{} ({percent:.1}%)</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" \
         fill=\"hsl({hue},80%,70%)\" stroke=\"white\" stroke-width=\"0.5\"/><text x=\"{:.1}\" y=\"{}\">{}</text></g>",
        escaped(name),
        HEIGHT - 1,
        x + 2.0,
        y + 12,
        escaped(&label)
    );
}

fn escaped(text: &str) -> String {
    let escaped = text.replace('&', "&amp;");
    escaped.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn boxes_are_as_wide_as_their_share_and_names_are_escaped() {
        let place = |function: &str| Place {
            function: function.to_owned(),
            file: String::new(),
            line: 0,
        };
        let stack = |leaf| ("main".to_owned(), vec![place(leaf), place("run")]);
        let samples = Samples {
            stacks: BTreeMap::from([(stack("a<b>"), 3), (stack("c"), 1)]),
            started: SystemTime::UNIX_EPOCH,
            took: Duration::from_secs(1),
        };
        let svg = draw(&samples);
        for part in [
            "4 samples in 1 s",
            "<title>main (100.0%)</title><rect x=\"0.0\"",
            "<title>run (100.0%)</title>",
            "<title>a&lt;b&gt; (75.0%)</title><rect x=\"0.0\" y=\"18\" width=\"900.0\"",
            "<title>c (25.0%)</title><rect x=\"900.0\" y=\"18\" width=\"300.0\"",
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
    }
}
