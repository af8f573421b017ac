//! Routers in words: `--router`, and the links of `gtp router`.
//!
//! A router is written as its address with what differs from the usual behind it, separated by
//! commas. Nothing here looks anything up.

use gtp::{LinkSide, Prefix, Rate, RouterSpec};

use crate::words;

/// Reads `ADDR[:PORT][,link=N][,far][,key=FILE][,peers=RANGE[+RANGE…]]`.
pub fn router(text: &str) -> Result<RouterSpec, String> {
    let mut words = text.split(',');
    let address = words.next().unwrap_or_default().to_owned();
    if address.is_empty() || address.contains(['/', '=', ' ']) {
        return Err("expected a router's address, as in 10.0.0.1 or gateway.example:4811".into());
    }
    let mut spec =
        RouterSpec { address, link: 0, side: LinkSide::Near, key: None, peers: Vec::new() };
    for word in words {
        match word.split_once('=') {
            Some(("link", number)) => {
                let number = number.parse().ok().filter(|number| (1..=LINKS_MOST).contains(number));
                spec.link = number.ok_or("a link is a number from 1 to 8")? - 1;
            }
            Some(("key", file)) if !file.is_empty() => spec.key = Some(file.into()),
            Some(("peers", ranges)) => {
                for range in ranges.split('+') {
                    let range = range.parse::<Prefix>().map_err(|bad| bad.to_string())?;
                    spec.peers.push(range);
                }
            }
            None if word == "far" => spec.side = LinkSide::Far,
            Some(_) | None => {
                return Err(format!(
                    "{word:?} says nothing of a router; there are link=N, far, key=FILE and \
                     peers=RANGE"
                ));
            }
        }
    }
    Ok(spec)
}

/// Reads what a link carries, out and in: one rate for both, or two with a slash between.
pub fn link(text: &str) -> Result<[Rate; 2], String> {
    let (out, in_) = text.split_once('/').unwrap_or((text, text));
    Ok([words::rate(out)?, words::rate(in_)?])
}

/// A router as [`router`] reads it, for people.
pub fn say(spec: &RouterSpec) -> String {
    let mut text = spec.address.clone();
    if spec.link > 0 {
        text += &format!(",link={}", spec.link + 1);
    }
    if spec.side == LinkSide::Far {
        text += ",far";
    }
    if let Some(key) = &spec.key {
        text += &format!(",key={}", key.display());
    }
    if !spec.peers.is_empty() {
        let peers: Vec<String> = spec.peers.iter().map(Prefix::to_string).collect();
        text += &format!(",peers={}", peers.join("+"));
    }
    text
}

/// A router's one-way links are 16.
pub const LINKS_MOST: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_is_read_as_it_is_written() {
        for text in [
            "10.0.0.1",
            "gateway.example:4900,link=3,far",
            "[2001:db8::1]:7,key=/etc/k,peers=10.0.0.0/8+2001:db8::/32",
        ] {
            assert_eq!(say(&router(text).unwrap()), text);
        }
        for wrong in ["", ",far", "a,link=0", "a,link=9", "a,near", "a,key=", "a,peers=x", "a/b"] {
            assert!(router(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_link_has_one_rate_for_both_ways_or_one_for_each() {
        assert_eq!(link("600Mbit").unwrap(), [Rate::from_mbps(600); 2]);
        assert_eq!(link("600Mbit/1Gbit").unwrap(), [600, 1_000].map(Rate::from_mbps));
        assert!(link("600Mbit/").is_err());
        assert!(link("600").is_err());
    }
}
