//! Fewer points for the same picture.
//!
//! Of every stretch of a long curve its first, lowest, highest and last point are kept, so that no
//! peak vanishes. Curves short enough are left as they are.

/// At most about `most` of these points, with every peak.
pub fn thinned(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    if points.len() <= most.max(8) {
        return points.to_vec();
    }
    let per = points.len().div_ceil(most / 4);
    let mut kept = Vec::with_capacity(most + 4);
    for stretch in points.chunks(per) {
        let mut places = [0, lowest(stretch, 1.0), lowest(stretch, -1.0), stretch.len() - 1];
        places.sort_unstable();
        let mut last = None;
        for place in places {
            if last != Some(place) {
                kept.push(stretch[place]);
            }
            last = Some(place);
        }
    }
    kept
}

/// Place of the least value times `sign`; breaks in the line come first, so that they are kept.
fn lowest(points: &[(f64, f64)], sign: f64) -> usize {
    let key = |(_, v): &(f64, f64)| if v.is_finite() { v * sign } else { f64::NEG_INFINITY };
    let order = points.iter().enumerate().min_by(|(_, a), (_, b)| key(a).total_cmp(&key(b)));
    order.map_or(0, |(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_survive_thinning_and_the_order_too() {
        let mut points: Vec<_> = (0..10_000).map(|n| (f64::from(n), 1.0)).collect();
        points[4_321].1 = 9.0;
        points[7_654].1 = -9.0;
        let kept = thinned(&points, 400);
        assert!(kept.len() <= 404, "{}", kept.len());
        assert!(kept.contains(&(4_321.0, 9.0)) && kept.contains(&(7_654.0, -9.0)));
        assert!(kept.windows(2).all(|w| w[0].0 < w[1].0));
        assert_eq!((kept[0], kept[kept.len() - 1]), (points[0], points[9_999]));
    }

    #[test]
    fn short_curves_are_left_alone() {
        let points = [(0.0, 1.0), (1.0, 2.0)];
        assert_eq!(thinned(&points, 100), points);
    }
}
