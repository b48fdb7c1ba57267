//! How operations are spelled. What stands around them in a line does not matter here.

use crate::event::Op;

/// An operation without its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Begin,
    End,
    Read,
    Write,
    Update,
    Acquire,
    Release,
    AcquireShared,
    ReleaseShared,
    Fork,
    Join,
    Signal,
    Wait,
    Arrive,
    Depart,
    Alloc,
    Free,
    Reset,
    Exit,
}

/// A word of up to eight bytes as a number, lowest byte first.
const fn word(text: &[u8]) -> u64 {
    let mut word = 0;
    let mut at = text.len();
    while at > 0 {
        at -= 1;
        word = word << 8 | text[at] as u64;
    }
    word
}

macro_rules! spellings {
    ($($name:ident $spelling:literal $(or $other:ident $alias:literal)? => $kind:ident,)*) => {
        $(
            const $name: u64 = word($spelling.as_bytes());
            $(const $other: u64 = word($alias.as_bytes());)?
        )*

        /// The operation that a word of at most eight bytes spells, the word as a number.
        #[inline]
        pub(super) fn kind_of(word: u64) -> Option<Kind> {
            match word {
                $($name $(| $other)? => Some(Kind::$kind),)*
                _ => None,
            }
        }

        /// How a kind is written.
        pub(super) const fn spelling(kind: Kind) -> &'static str {
            match kind {
                $(Kind::$kind => $spelling,)*
            }
        }

        #[cfg(test)]
        pub(super) const KINDS: &[Kind] = &[$(Kind::$kind,)*];
    };
}

spellings! {
    READ "r" => Read,
    WRITE "w" => Write,
    ACQUIRE "acq" => Acquire,
    RELEASE "rel" => Release,
    BEGIN "begin" => Begin,
    END "end" => End,
    FORK "fork" => Fork,
    JOIN "join" => Join,
    UPDATE "u" or RMW "rmw" => Update,
    ACQUIRE_SHARED "racq" => AcquireShared,
    RELEASE_SHARED "rrel" => ReleaseShared,
    SIGNAL "signal" => Signal,
    WAIT "wait" => Wait,
    ARRIVE "arrive" => Arrive,
    DEPART "depart" => Depart,
    ALLOC "alloc" => Alloc,
    FREE "free" => Free,
    RESET "reset" => Reset,
    EXIT "exit" => Exit,
}

/// The operation that a word spells.
pub(super) fn kind_of_bytes(text: &[u8]) -> Option<Kind> {
    if text.len() > 8 || text.contains(&0) { None } else { kind_of(word(text)) }
}

/// An event's operation without its object.
pub(super) const fn kind_of_op(op: Op) -> Kind {
    match op {
        Op::Begin(_) => Kind::Begin,
        Op::End(_) => Kind::End,
        Op::Read(_) => Kind::Read,
        Op::Write(_) => Kind::Write,
        Op::Update(_) => Kind::Update,
        Op::Acquire(_) => Kind::Acquire,
        Op::Release(_) => Kind::Release,
        Op::AcquireShared(_) => Kind::AcquireShared,
        Op::ReleaseShared(_) => Kind::ReleaseShared,
        Op::Fork(_) => Kind::Fork,
        Op::Join(_) => Kind::Join,
        Op::Signal(_) => Kind::Signal,
        Op::Wait(_) => Kind::Wait,
        Op::Arrive(_) => Kind::Arrive,
        Op::Depart(_) => Kind::Depart,
        Op::Alloc(_) => Kind::Alloc,
        Op::Free(_) => Kind::Free,
        Op::Reset(_) => Kind::Reset,
        Op::Exit => Kind::Exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for &kind in KINDS {
            assert_eq!(kind_of_bytes(spelling(kind).as_bytes()), Some(kind));
        }
        assert_eq!(kind_of_bytes(b"rmw"), Some(Kind::Update));
        for wrong in ["", "x", "R", "r\0", "acquire", "acquire_all"] {
            assert_eq!(kind_of_bytes(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
