//! Devices as text, in the grammar of `folioswap run --swap`.

use crate::{Device, Error};
use std::str::FromStr;

/// Parses `TYPE[:TARGET][,KEY=VALUE]...`, the grammar of `folioswap run --swap`: for example
/// `zram`, `ram,size=64M` or `file:/var/tmp,size=1G,prio=0`.
///
/// ```
/// use folioswap::{Device, Error, Swap};
///
/// let swap = Swap::builder()
///     .limit("64M")
///     .device("zram,prio=1".parse::<Device>()?)
///     .device("file:/var/tmp,size=256M,prio=0".parse::<Device>()?)
///     .build()?;
/// # drop(swap);
/// assert!(matches!("disk:/dev/sda".parse::<Device>(), Err(Error::DeviceText { .. })));
/// # Ok::<(), Error>(())
/// ```
impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let refuse = |why: &'static str| Error::DeviceText { given: text.to_owned(), why };
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let (mut size, mut priority) = (None, None);
        for part in parts {
            let is_repeated = match part.split_once('=') {
                Some(("size", value)) => size.replace(value.to_owned()).is_some(),
                Some(("prio", value)) => {
                    let number = value.parse().map_err(|_| refuse("prio is a number, 0 to 32767"))?;
                    priority.replace(number).is_some()
                }
                _ => return Err(refuse("after the type there can be size=SIZE and prio=NUMBER")),
            };
            if is_repeated {
                return Err(refuse("something is given twice"));
            }
        }
        let device = match (name.split_once(':'), size) {
            (None, None) if name == "zram" => Device::zram(),
            (None, Some(size)) if name == "ram" => Device::ram(size),
            (None, None) if name == "ram" => return Err(refuse("ram needs a size: ram,size=64M")),
            (Some(("file", directory)), size) if !directory.is_empty() => {
                let device = Device::file(directory);
                if let Some(size) = size { device.size(size) } else { device }
            }
            (None, Some(_)) if name == "zram" => {
                return Err(refuse("zram has no size: it grows as needed, within the limit"));
            }
            _ => return Err(refuse("there are zram, ram,size=SIZE and file:DIRECTORY")),
        };
        Ok(if let Some(priority) = priority { device.priority(priority) } else { device })
    }
}

#[cfg(test)]
mod tests;
