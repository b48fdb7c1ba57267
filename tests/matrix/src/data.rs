//! Shared state: its declaration, and the expressions and statements that read and change it.

use crate::{Data, Language, Lock, Program, pattern::steps};

/// Name of a shared value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    X,
    Y,
}

impl Slot {
    fn letter(self) -> &'static str {
        match self {
            Self::X => "x",
            Self::Y => "y",
        }
    }

    fn number(self) -> usize {
        match self {
            Self::X => 0,
            Self::Y => 1,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::X => "first",
            Self::Y => "second",
        }
    }
}

/// State of a program, as code in `here` reaches it: the variable of a Rust program that holds the state.
#[derive(Clone, Copy)]
pub(crate) struct State<'p> {
    pub(crate) program: &'p Program,
    pub(crate) here: &'p str,
}

impl State<'_> {
    fn is_rust(self) -> bool {
        self.program.language == Language::Rust
    }

    fn is_atomic(self) -> bool {
        self.program.lock == Lock::Atomics
    }

    /// Place in memory of a value that is a variable.
    fn place(self, slot: Slot) -> String {
        let (letter, number) = (slot.letter(), slot.number());
        if self.is_rust() {
            return match self.program.lock {
                Lock::TwoLocks => format!("(*{})", if slot == Slot::X { "a" } else { "b" }),
                Lock::Atomics => format!("{}.{letter}", self.here),
                _ if self.program.data == Data::Vector => format!("g.cells[{number}]"),
                _ => format!("g.{letter}"),
            };
        }
        match self.program.data {
            Data::StaticLocal => format!("(*cell({number}))"),
            Data::Heap => format!("state->{letter}"),
            Data::Stack => format!("s->{letter}"),
            Data::Vector => format!("cells[{number}]"),
            Data::Map => format!("cells[\"{}\"]", slot.word()),
            Data::List | Data::Table => format!("find({number})->value.number"),
            _ => letter.to_owned(),
        }
    }

    /// Value of a slot.
    pub(crate) fn get(self, slot: Slot) -> String {
        let place = self.place(slot);
        if self.is_atomic() {
            return match self.program.language {
                Language::C => format!("atomic_load(&{place})"),
                Language::Cpp => format!("{place}.load()"),
                Language::Rust => format!("{place}.load(Ordering::SeqCst)"),
            };
        }
        match (self.program.data, self.is_rust()) {
            (Data::Map, true) => format!("g.cells[\"{}\"]", slot.word()),
            (Data::Text, true) => format!("{place}.parse::<i64>().unwrap()"),
            (Data::Text, false) => format!("std::stol({place})"),
            (Data::Optional, true) => format!("{place}.unwrap_or(0)"),
            (Data::Optional, false) => format!("{place}.value_or(0)"),
            _ => place,
        }
    }

    /// Statement that changes a slot.
    pub(crate) fn put(self, slot: Slot, value: &str) -> String {
        let place = self.place(slot);
        if self.is_atomic() {
            return match self.program.language {
                Language::C => format!("atomic_store(&{place}, {value});"),
                Language::Cpp => format!("{place}.store({value});"),
                Language::Rust => format!("{place}.store({value}, Ordering::SeqCst);"),
            };
        }
        match (self.program.data, self.is_rust()) {
            (Data::Map, true) => format!(
                "let value = {value};\ng.cells.insert(\"{}\".to_string(), value);",
                slot.word()
            ),
            (Data::Text, true) => format!("let value = {value};\n{place} = value.to_string();"),
            (Data::Text, false) => format!("{place} = std::to_string({value});"),
            (Data::Optional, true) => format!("let value = {value};\n{place} = Some(value);"),
            _ => format!("{place} = {value};"),
        }
    }

    /// Statement that adds to a slot.
    pub(crate) fn add(self, slot: Slot, value: &str) -> String {
        let place = self.place(slot);
        if self.is_atomic() {
            return match self.program.language {
                Language::C => format!("atomic_fetch_add(&{place}, {value});"),
                Language::Cpp => format!("{place}.fetch_add({value});"),
                Language::Rust => format!("{place}.fetch_add({value}, Ordering::SeqCst);"),
            };
        }
        match (self.program.data, self.is_rust()) {
            (Data::Map, true) => {
                format!("*g.cells.get_mut(\"{}\").unwrap() += {value};", slot.word())
            }
            (Data::Text | Data::Optional, _) => {
                let sum = format!("{} + {value}", self.get(slot));
                self.put(slot, &sum)
            }
            _ => format!("{place} += {value};"),
        }
    }

    /// Expression that replaces `old` by `new` and says whether it did; in C and C++ `old` is a variable or a constant.
    pub(crate) fn exchange(self, slot: Slot, old: &str, new: &str) -> String {
        let place = self.place(slot);
        match self.program.language {
            Language::C => {
                format!("atomic_compare_exchange_strong(&{place}, &(long){{{old}}}, {new})")
            }
            Language::Cpp => format!("exchange({place}, {old}, {new})"),
            Language::Rust => format!(
                "{place}.compare_exchange({old}, {new}, Ordering::SeqCst, Ordering::SeqCst).is_ok()"
            ),
        }
    }

    /// Length of the sequence.
    pub(crate) fn length(self) -> String {
        match (self.program.data, self.is_rust()) {
            (Data::Vector, true) => "(g.items.len() as i64)".to_owned(),
            (Data::Text, true) => "(g.text.len() as i64)".to_owned(),
            (_, true) => "g.count".to_owned(),
            (Data::Vector, false) => "(long)items.size()".to_owned(),
            (Data::Text, false) => "(long)text.size()".to_owned(),
            _ => format!("{}count", self.owner()),
        }
    }

    /// Element of the sequence.
    pub(crate) fn at(self, index: &str) -> String {
        match (self.program.data, self.is_rust()) {
            (Data::Text, true) => format!("(g.text.as_bytes()[({index}) as usize] as i64)"),
            (_, true) => format!("g.items[({index}) as usize]"),
            (Data::Text, false) => format!("text[{index}]"),
            _ => format!("{}items[{index}]", self.owner()),
        }
    }

    /// Statement that adds an element to the sequence.
    pub(crate) fn push(self, value: &str) -> String {
        let owner = self.owner();
        match (self.program.data, self.is_rust()) {
            (Data::Vector, true) => format!("g.items.push({value});"),
            (Data::Text, true) => "g.text.push('a');".to_owned(),
            (_, true) => {
                format!("let n = g.count as usize;\ng.items[n] = {value};\ng.count += 1;")
            }
            (Data::Vector, false) => format!("items.push_back({value});"),
            (Data::Text, false) => "text.push_back('a');".to_owned(),
            _ => format!("{owner}items[{owner}count] = {value};\n{owner}count++;"),
        }
    }

    /// Statement that removes the last element of the sequence.
    pub(crate) fn pop(self) -> String {
        match (self.program.data, self.is_rust()) {
            (Data::Vector, true) => "g.items.pop();".to_owned(),
            (Data::Text, true) => "g.text.pop();".to_owned(),
            (_, true) => "g.count -= 1;".to_owned(),
            (Data::Vector, false) => "items.pop_back();".to_owned(),
            (Data::Text, false) => "text.pop_back();".to_owned(),
            _ => format!("{}count--;", self.owner()),
        }
    }

    /// Statement that empties the sequence.
    pub(crate) fn clear(self) -> String {
        match (self.program.data, self.is_rust()) {
            (Data::Vector, true) => "g.items.clear();".to_owned(),
            (Data::Text, true) => "g.text.clear();".to_owned(),
            (_, true) => "g.count = 0;".to_owned(),
            (Data::Vector, false) => "items.clear();".to_owned(),
            (Data::Text, false) => "text.clear();".to_owned(),
            _ => format!("{}count = 0;", self.owner()),
        }
    }

    fn owner(self) -> &'static str {
        match self.program.data {
            Data::Heap => "state->",
            Data::Stack => "s->",
            Data::Table => "table->",
            _ => "",
        }
    }
}

/// Parameter and argument by which functions of C and C++ get the state, with commas after them.
pub(crate) fn passed(program: &Program) -> (&'static str, &'static str) {
    if program.data == Data::Stack { ("struct state *s, ", "s, ") } else { ("", "") }
}

/// Declarations of the state in C and C++.
pub(crate) fn declaration(program: &Program) -> String {
    let steps = steps(program.pattern);
    let long = match (program.lock, program.language) {
        (Lock::Atomics, Language::C) => "_Atomic long",
        (Lock::Atomics, _) => "std::atomic<long>",
        _ => "long",
    };
    let fields = if steps.has_items {
        "    long count;\n    long items[64];\n".to_owned()
    } else {
        format!("    {long} x;\n    {long} y;\n")
    };
    match (program.data, steps.has_items) {
        (Data::Stack, _) => format!("struct state {{\n{fields}}};\n"),
        (Data::Heap, _) if program.language == Language::Cpp => {
            format!("struct State {{\n{fields}}};\nstatic std::unique_ptr<State> state;\n")
        }
        (Data::Heap, _) => format!("struct state {{\n{fields}}};\nstatic struct state *state;\n"),
        (Data::Vector, true) => "static std::vector<long> items;\n".to_owned(),
        (Data::Text, true) => "static std::string text;\n".to_owned(),
        (Data::Table, true) => {
            "struct table {\n    long count;\n    long items[];\n};\nstatic struct table *table;\n"
                .to_owned()
        }
        (_, true) => "static long count;\nstatic long items[64];\n".to_owned(),
        (Data::StaticLocal, _) => "static long *cell(int which) {\n    static long cells[2];\n    \
             return &cells[which];\n}\n"
            .to_owned(),
        (Data::Vector, _) => "static std::vector<long> cells{0, 0};\n".to_owned(),
        (Data::Map, _) => "static std::map<std::string, long> cells;\n".to_owned(),
        (Data::Text, _) => "static std::string x = \"0\", y = \"0\";\n".to_owned(),
        (Data::Optional, _) => "static std::optional<long> x, y;\n".to_owned(),
        (Data::List, _) => LIST.to_owned(),
        (Data::Table, _) => TABLE.to_owned(),
        (Data::Member, _) => "long x = 0;\nlong y = 0;\n".to_owned(),
        _ => format!("static {long} x, y;\n"),
    }
}

/// Statements that make the state of a program in C or C++, once.
pub(crate) fn creation(program: &Program) -> &'static str {
    let has_items = steps(program.pattern).has_items;
    match (program.data, program.language) {
        (Data::Heap, Language::Cpp) => "if (!state) {\nstate = std::make_unique<State>();\n}\n",
        (Data::Heap, _) => "if (!state) {\nstate = calloc(1, sizeof *state);\n}\n",
        (Data::Table, _) if has_items => {
            "if (!table) {\ntable = calloc(1, sizeof *table + 64 * sizeof table->items[0]);\n}\n"
        }
        (Data::Table, _) => {
            "if (!table) {\ntable = calloc(1, sizeof *table + 16 * sizeof table->slots[0]);\n\
             table->size = 16;\n}\n"
        }
        _ => "",
    }
}

const LIST: &str = "\
struct node {
    struct node *next;
    int key;
    union {
        long number;
        char text[8];
    } value;
};
static struct node *head;
static struct node *find(int key) {
    struct node *node = head;
    while (node && node->key != key) {
        node = node->next;
    }
    if (!node) {
        node = calloc(1, sizeof *node);
        node->key = key;
        node->next = head;
        head = node;
    }
    return node;
}
";

const TABLE: &str = "\
struct entry {
    unsigned key;
    union {
        long number;
        void *pointer;
    } value;
};
struct table {
    unsigned size;
    struct entry slots[];
};
static struct table *table;
static struct entry *find(unsigned key) {
    unsigned at = (key + 1) * 2654435761u % table->size;
    while (table->slots[at].key != 0 && table->slots[at].key != key + 1) {
        at = (at + 1) % table->size;
    }
    table->slots[at].key = key + 1;
    return &table->slots[at];
}
";

/// Declaration of the state in Rust, without its lock: a structure `State` with a constructor.
pub(crate) fn rust_state(program: &Program) -> String {
    let has_items = steps(program.pattern).has_items;
    let (fields, values) = match (program.data, has_items) {
        (Data::Vector, true) => ("items: Vec<i64>", "items: Vec::new()"),
        (Data::Text, true) => ("text: String", "text: String::new()"),
        (_, true) => ("count: i64,\n    items: [i64; 64]", "count: 0, items: [0; 64]"),
        (Data::Vector, _) => ("cells: Vec<i64>", "cells: vec![0, 0]"),
        (Data::Map, _) => (
            "cells: HashMap<String, i64>",
            "cells: HashMap::from([(\"first\".to_string(), 0), (\"second\".to_string(), 0)])",
        ),
        (Data::Text, _) => {
            ("x: String,\n    y: String", "x: \"0\".to_string(), y: \"0\".to_string()")
        }
        (Data::Optional, _) => ("x: Option<i64>,\n    y: Option<i64>", "x: None, y: None"),
        _ => ("x: i64,\n    y: i64", "x: 0, y: 0"),
    };
    let constant = if program.data == Data::Global { "const " } else { "" };
    format!(
        "struct State {{\n    {fields},\n}}\nimpl State {{\n    {constant}fn new() -> Self {{\n        \
         Self {{ {values} }}\n    }}\n}}\n"
    )
}
