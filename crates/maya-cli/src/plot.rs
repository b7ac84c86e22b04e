//! Line charts as SVG text.

use std::fmt::Write as _;

/// A chart.
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the horizontal axis.
    pub x: String,
    /// Beside the vertical axis.
    pub y: String,
    /// What is drawn.
    pub lines: Vec<Line>,
}

/// A line with its name in the legend.
pub struct Line {
    /// In the legend.
    pub name: String,
    /// Points from left to right; those that are no finite numbers are left out.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 480.0;
/// Around the field: left, top, right, bottom. The legend stands at the right.
const MARGIN: [f64; 4] = [70.0, 44.0, 170.0, 54.0];
/// Colours that differ in lightness too, and read on white and on black (after Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f"];
/// Of text and axes: a grey that reads on both.
const INK: &str = "#808080";

impl Chart {
    /// The whole file.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        let [left, top, right, bottom] = MARGIN;
        let (field_w, field_h) = (WIDTH - left - right, HEIGHT - top - bottom);
        let points = || self.lines.iter().flat_map(|l| finite(&l.points));
        let (xs, ys) = (Axis::over(points().map(|p| p.0)), Axis::over(points().map(|p| p.1).chain([0.0])));
        let x_at = |x: f64| left + xs.part(x) * field_w;
        let y_at = |y: f64| top + (1.0 - ys.part(y)) * field_h;
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"{INK}\">"
        );
        let mut text = |x: f64, y: f64, anchor: &str, more: &str, text: &str| {
            let text = escaped(text);
            let _ =
                writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{text}</text>");
        };
        let (middle, half) = (left + field_w / 2.0, top + field_h / 2.0);
        text(middle, 24.0, "middle", " font-size=\"16\"", &self.title);
        text(middle, HEIGHT - 12.0, "middle", "", &self.x);
        text(18.0, half, "middle", &format!(" transform=\"rotate(-90 18 {half:.1})\""), &self.y);
        for tick in xs.ticks() {
            text(x_at(tick), top + field_h + 18.0, "middle", "", &xs.label(tick));
        }
        for tick in ys.ticks() {
            text(left - 8.0, y_at(tick) + 4.0, "end", "", &ys.label(tick));
        }
        for (i, line) in self.lines.iter().enumerate() {
            text(WIDTH - right + 42.0, top + 12.0 + 20.0 * i as f64, "start", "", &line.name);
        }
        let mut stroke = |colour: &str, width: f64, opacity: f64, points: &str| {
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-opacity=\"{opacity}\" \
                 points=\"{points}\"/>"
            );
        };
        for tick in ys.ticks() {
            let y = y_at(tick);
            stroke(INK, 1.0, 0.3, &format!("{left:.1},{y:.1} {:.1},{y:.1}", left + field_w));
        }
        for tick in xs.ticks() {
            let (x, foot) = (x_at(tick), top + field_h);
            stroke(INK, 1.0, 1.0, &format!("{x:.1},{foot:.1} {x:.1},{:.1}", foot + 5.0));
        }
        let corners = [(left, top), (left, top + field_h), (left + field_w, top + field_h)];
        stroke(INK, 1.0, 1.0, &corners.map(|(x, y)| format!("{x:.1},{y:.1}")).join(" "));
        for (i, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let points: Vec<String> =
                finite(&line.points).map(|(x, y)| format!("{:.1},{:.1}", x_at(x), y_at(y))).collect();
            stroke(colour, 2.0, 1.0, &points.join(" "));
            let (x, y) = (WIDTH - right + 12.0, top + 8.0 + 20.0 * i as f64);
            stroke(colour, 2.0, 1.0, &format!("{x:.1},{y:.1} {:.1},{y:.1}", x + 24.0));
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn finite(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + '_ {
    // Beyond this a span could overflow; nothing that is measured comes near.
    points.iter().copied().filter(|(x, y)| x.abs() < 1e100 && y.abs() < 1e100)
}

/// A range of values cut at round numbers.
struct Axis {
    from: f64,
    step: f64,
    steps: usize,
}

impl Axis {
    /// About six round steps over all values.
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        // Nothing to show, or one value: a range around it.
        let (low, high) = match (low <= high, high - low) {
            (false, _) => (0.0, 1.0),
            (true, span) if span.is_finite() && span > low.abs().max(high.abs()) * 1e-12 => (low, high),
            (true, _) => (low, low + low.abs().clamp(1.0, f64::MAX / 4.0)),
        };
        let raw = (high - low) / 6.0;
        let unit = 10f64.powf(raw.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0].into_iter().map(|m| m * unit).find(|&s| s >= raw).unwrap_or(10.0 * unit);
        let from = (low / step).floor() * step;
        let steps = ((high - from) / step - 1e-9).ceil().clamp(1.0, 20.0) as usize;
        Self { from, step, steps }
    }

    fn part(&self, value: f64) -> f64 {
        (value - self.from) / (self.step * self.steps as f64)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        (0..=self.steps).map(|i| self.from + self.step * i as f64)
    }

    fn label(&self, tick: f64) -> String {
        let digits = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        // Steps of 2.5 need a digit more than their size says.
        let digits =
            digits + usize::from(digits < 9 && (self.step * 10f64.powi(digits as i32)).fract() > 1e-6);
        format!("{tick:.digits$}")
    }
}

/// Text that is no markup: characters with a meaning replaced, those that XML forbids left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => {}
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: &[(f64, f64)]) -> String {
        let line = Line { name: "a<b>&\"\u{1}".into(), points: points.to_vec() };
        Chart { title: "t".into(), x: "x".into(), y: "y".into(), lines: vec![line] }.svg()
    }

    #[test]
    fn text_is_escaped_and_points_are_inside() {
        let svg = chart(&[(0.0, 0.0), (50.0, 100.0), (f64::NAN, 1.0)]);
        assert!(svg.contains(">a&lt;b&gt;&amp;&quot;<"), "{svg}");
        // The first point is the field's lower left corner, the last its upper edge: 100 is a round number.
        assert!(svg.contains("points=\"70.0,426.0 "), "{svg}");
        assert!(svg.contains(",44.0\"/>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn any_values_give_a_chart() {
        for points in [
            &[][..],
            &[(1.0, 5.0)],
            &[(0.0, 0.0)],
            &[(0.0, -3.0), (1.0, f64::INFINITY)],
            &[(f64::MIN, f64::MAX), (f64::MAX, f64::MIN)],
            &[(1e300, 1e-300), (2e300, 2e-300)],
        ] {
            let svg = chart(points);
            assert!(svg.len() < 20_000 && svg.ends_with("</svg>\n"), "{points:?}");
            assert!(!svg.contains("NaN"), "{points:?}: {svg}");
        }
    }

    #[test]
    fn ticks_are_round() {
        for (low, high, wanted) in [
            (0.0, 100.0, "0 20 40 60 80 100"),
            (17.0, 201.0, "0 50 100 150 200 250"),
            (0.0, 1.0, "0.0 0.2 0.4 0.6 0.8 1.0"),
            (0.0, 13.0, "0.0 2.5 5.0 7.5 10.0 12.5 15.0"),
        ] {
            let axis = Axis::over([low, high].into_iter());
            let labels: Vec<String> = axis.ticks().map(|t| axis.label(t)).collect();
            assert_eq!(labels.join(" "), wanted);
        }
    }
}
