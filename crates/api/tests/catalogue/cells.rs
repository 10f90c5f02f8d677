//! Tables of comma-separated values with quotes, by the names of their columns.

use std::collections::BTreeMap;

pub(crate) type Row = BTreeMap<String, String>;

pub(crate) struct Rows(Vec<Row>);

impl Rows {
    pub(crate) fn of(text: &str) -> Self {
        let mut lines = text.lines();
        let titles = cells(lines.next().unwrap_or(""));
        Self(lines.map(|line| titles.iter().cloned().zip(cells(line)).collect()).collect())
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Row> {
        self.0.iter()
    }

    /// Rows whose cell in a column is that.
    pub(crate) fn with<'a>(&'a self, column: &'a str, cell: &'a str) -> impl Iterator<Item = &'a Row> {
        self.0.iter().filter(move |row| row.get(column).is_some_and(|found| found == cell))
    }

    pub(crate) fn find(&self, column: &str, cell: &str) -> Option<Row> {
        self.with(column, cell).next().cloned()
    }
}

fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            letter => cells.last_mut().expect("there is always one").push(letter),
        }
    }
    cells
}
