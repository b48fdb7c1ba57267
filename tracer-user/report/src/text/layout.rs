//! Lays plain text out in the columns of a terminal: lines that are broken at blanks, and tables. No colour lives
//! here.

use crate::escape::{cut_middle, printable, width};

/// Breaks printable text at blanks into lines of at most `columns` columns. Longer words have a separate line.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let needed = width(word);
        if !line.is_empty() && used + 1 + needed <= columns {
            line.push(' ');
            used += 1;
        } else if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        line.push_str(word);
        used += needed;
    }
    lines.push(line);
    lines
}

/// Breaks text as [`wrap`] does, with longer words cut in their middle.
pub fn wrap_cut(text: &str, columns: usize) -> Vec<String> {
    let words: Vec<_> = text.split(' ').map(|word| cut_middle(word, columns)).collect();
    wrap(&words.join(" "), columns)
}

/// Widest column; wider cells do not move the column that follows.
const WIDEST: usize = 48;

/// Narrowest last column; where fewer columns remain, the text gets separate lines.
const NARROWEST: usize = 40;

/// Indentation of a last cell with separate lines.
const INDENT: usize = 6;

/// Formats rows of three cells, of which the second may be empty in all. With a `columns`, the last one is broken into
/// lines that fit into so many columns.
pub fn table(rows: &[[String; 3]], columns: Option<usize>) -> String {
    let rows: Vec<[_; 3]> =
        rows.iter().map(|row| row.each_ref().map(|cell| printable(cell))).collect();
    let widest =
        |cell: usize| rows.iter().map(|row| width(&row[cell])).max().unwrap_or(0).min(WIDEST);
    let (first, second) = (widest(0), widest(1));
    let mut text = String::new();
    for [one, two, three] in &rows {
        let mut line = format!("  {}  ", padded(one, first));
        if second > 0 {
            line += &padded(two, second);
            line += "  ";
        }
        let mut indent = width(&line);
        if columns.is_some_and(|columns| columns.saturating_sub(indent) < NARROWEST) {
            text.push_str(line.trim_end());
            text.push('\n');
            indent = INDENT;
            line = " ".repeat(indent);
        }
        let parts = match columns {
            Some(columns) => wrap(three, columns.saturating_sub(indent)),
            None => vec![three.clone().into_owned()],
        };
        for part in parts {
            text.push_str(format!("{line}{part}").trim_end());
            text.push('\n');
            line = " ".repeat(indent);
        }
    }
    text
}

/// A cell with blanks behind it, up to a width in columns.
fn padded(cell: &str, columns: usize) -> String {
    format!("{cell}{}", " ".repeat(columns.saturating_sub(width(cell))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(rows: &[[&str; 3]], columns: usize) -> String {
        let rows: Vec<[String; 3]> = rows.iter().map(|row| row.map(ToOwned::to_owned)).collect();
        table(&rows, Some(columns))
    }

    #[test]
    fn wrapping_counts_columns_and_cuts_long_words() {
        assert_eq!(wrap_cut("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap_cut("残高 残高", 8), ["残高", "残高"]);
        assert_eq!(wrap_cut("abcdefghijkl x", 8), ["abc...kl", "x"]);
        assert_eq!(wrap_cut("", 8), [""]);
        assert_eq!(wrap("abcdefghijkl x", 8), ["abcdefghijkl", "x"]);
    }

    #[test]
    fn long_reasons_go_on_in_their_column() {
        let rows = [
            ["transfer", "bank.c:70", "it takes a lock: it calls pthread_mutex_lock"],
            ["main", "bank.c:90", "it is the program's main function"],
        ];
        assert_eq!(
            laid_out(&rows, 64),
            "  transfer  bank.c:70  it takes a lock: it calls\n                       pthread_mutex_lock\n  \
             main      bank.c:90  it is the program's main function\n"
        );
    }

    #[test]
    fn narrow_columns_are_left() {
        let name = "a_function_with_a_name_that_is_much_longer";
        let rows = [[name, "", "it waits: it calls a_function_with_quite_a_long_name_as_well"]];
        assert_eq!(
            laid_out(&rows, 60),
            format!(
                "  {name}\n      it waits: it calls\n      a_function_with_quite_a_long_name_as_well\n"
            )
        );
    }

    #[test]
    fn columns_are_those_of_a_terminal() {
        let rows = [
            ["残高", "bank.c:70", "one two"],
            ["x\x1b", "bank.c:90", "それは それは それは それは それは それは"],
        ];
        assert_eq!(
            laid_out(&rows, 60),
            "  残高   bank.c:70  one two\n  \
             x\\x1b  bank.c:90  それは それは それは それは それは\n                    それは\n"
        );
    }
}
