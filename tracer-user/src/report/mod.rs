//! Reports: findings with names and source lines put on them, as data, as text and as JSON. What is found is
//! decided in `checker`; how names are looked up, behind [`Names`].

mod model;
mod names;

pub use model::*;
pub use names::{Context, Names, RegionName, ThreadName};
