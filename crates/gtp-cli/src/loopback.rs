//! Addresses of this machine that nobody else can reach, as people write them.
//!
//! Pages with numbers are for such addresses alone, and any other is refused where it is read: by
//! an option, a variable or a file, before anything is opened. What is served there is unknown
//! here.

use std::net::SocketAddr;

/// Reads `ADDR:PORT` of a loopback address.
///
/// # Errors
/// What to write instead.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "it is written ADDR:PORT, as in 127.0.0.1:9811 or [::1]:9811".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err(format!("{address} can be reached from outside: name a loopback address")),
    }
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn only_loopback_addresses_with_a_port_are_taken() {
        for text in ["127.0.0.1:0", "127.9.0.1:9811", "[::1]:9811"] {
            assert_eq!(address(text).map(|at| at.to_string()), Ok(text.to_owned()));
        }
        for text in ["0.0.0.0:9811", "[::]:1", "10.0.0.1:1", "9811", "localhost:9811", ""] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
