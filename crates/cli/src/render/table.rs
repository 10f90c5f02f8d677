//! Tables: aligned for people, comma-separated for programs.
//!
//! A column has a title for the one and a key for the other; a cell has a text and, where that is rounded or
//! relative, the plain value. Wide columns are left out unless asked for, and always in CSV.

use crate::render::output::{Paint, Tone};

/// What is between two columns.
const GAP: &str = "  ";

/// A column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    key: &'static str,
    right: bool,
    wide: bool,
}

impl Column {
    /// Text, aligned left.
    pub(crate) const fn text(title: &'static str, key: &'static str) -> Self {
        Self { title, key, right: false, wide: false }
    }

    /// Numbers, aligned right.
    pub(crate) const fn number(title: &'static str, key: &'static str) -> Self {
        Self { title, key, right: true, wide: false }
    }

    /// Shown only when asked for.
    pub(crate) const fn wide(self) -> Self {
        Self { wide: true, ..self }
    }
}

/// One value.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    plain: Option<String>,
    tone: Tone,
}

impl Cell {
    /// A text that programs may read too.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), plain: None, tone: Tone::Plain }
    }

    /// What programs read instead.
    pub(crate) fn plain(self, plain: &impl ToString) -> Self {
        Self { plain: Some(plain.to_string()), ..self }
    }

    /// What programs read instead, nothing where nothing is known.
    pub(crate) fn plain_if_known(self, plain: Option<&impl ToString>) -> Self {
        Self { plain: Some(plain.map(ToString::to_string).unwrap_or_default()), ..self }
    }

    /// In a colour.
    pub(crate) fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

/// How much of a table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    /// The wide columns too.
    pub(crate) wide: bool,
    /// The line of titles.
    pub(crate) headers: bool,
    /// Colours.
    pub(crate) paint: Paint,
}

/// The head of a column in a table, where the title may be of the user's own words.
#[derive(Clone, Debug)]
struct Head {
    title: String,
    key: String,
    right: bool,
    wide: bool,
}

impl From<&Column> for Head {
    fn from(column: &Column) -> Self {
        let Column { title, key, right, wide } = *column;
        Self { title: title.to_owned(), key: key.to_owned(), right, wide }
    }
}

/// Rows under columns.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Head>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Without rows.
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self::keyed(&[], columns)
    }

    /// Without rows, and with columns of text before the others that have the names that they are asked for by.
    pub(crate) fn keyed(keys: &[String], columns: &[Column]) -> Self {
        let head =
            |key: &String| Head { title: key.to_uppercase(), key: key.clone(), right: false, wide: false };
        let columns = keys.iter().map(head).chain(columns.iter().map(Head::from)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    /// As aligned lines.
    pub(crate) fn aligned(&self, look: Look) -> String {
        let shown: Vec<usize> =
            (0..self.columns.len()).filter(|&index| look.wide || !self.columns[index].wide).collect();
        let widths: Vec<usize> =
            self.columns.iter().enumerate().map(|(index, _)| self.width(index, look)).collect();
        let titles: Vec<Cell> =
            self.columns.iter().map(|column| Cell::new(column.title.clone()).tone(Tone::Faint)).collect();
        let mut text = String::new();
        for row in look.headers.then_some(&titles).into_iter().chain(&self.rows) {
            let cells = shown.iter().map(|&index| self.padded(index, &row[index], widths[index], look.paint));
            text.push_str(cells.collect::<Vec<_>>().join(GAP).trim_end());
            text.push('\n');
        }
        text
    }

    /// As lines of a larger picture, set in and with titles.
    pub(crate) fn indented(&self, paint: Paint) -> Vec<String> {
        let look = Look { wide: false, headers: true, paint };
        self.aligned(look).lines().map(|line| format!("  {line}")).collect()
    }

    /// As comma-separated values, every column.
    pub(crate) fn csv(&self, headers: bool) -> String {
        let keys: Vec<String> = self.columns.iter().map(|column| csv_field(&column.key)).collect();
        let plain = |cell: &Cell| csv_field(cell.plain.as_ref().unwrap_or(&cell.text));
        let rows = self.rows.iter().map(|row| row.iter().map(plain).collect::<Vec<_>>());
        let lines = headers.then_some(keys).into_iter().chain(rows).map(|fields| fields.join(",") + "\n");
        lines.collect()
    }

    fn width(&self, index: usize, look: Look) -> usize {
        let title = if look.headers { self.columns[index].title.chars().count() } else { 0 };
        let cells = self.rows.iter().map(|row| row[index].text.chars().count());
        cells.max().unwrap_or_default().max(title)
    }

    fn padded(&self, index: usize, cell: &Cell, width: usize, paint: Paint) -> String {
        // Colour codes have no width, so they are put around the text after the padding is known.
        let padding = " ".repeat(width - cell.text.chars().count());
        let text = paint.tone(cell.tone, &cell.text);
        if self.columns[index].right { padding + &text } else { text + &padding }
    }
}

fn csv_field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look { wide: false, headers: true, paint: Paint::OFF };

    fn table() -> Table {
        let columns = [
            Column::text("NAME", "name"),
            Column::number("GPUS", "gpus"),
            Column::text("UID", "uid").wide(),
            Column::number("AGE", "at_ms"),
        ];
        let mut table = Table::new(&columns);
        table.row(vec![Cell::new("a"), Cell::new("8"), Cell::new("u1"), Cell::new("3m").plain(&180_000)]);
        let unknown = Cell::new("?").plain_if_known(None::<&u64>);
        table.row(vec![Cell::new("größer"), Cell::new("0.25"), Cell::new("u,2"), unknown]);
        table
    }

    #[test]
    fn text_is_left_and_numbers_are_right() {
        assert_eq!(table().aligned(PLAIN), "NAME    GPUS  AGE\na          8   3m\ngrößer  0.25    ?\n");
    }

    #[test]
    fn wide_has_more_columns_and_headers_can_go() {
        let look = Look { wide: true, headers: false, ..PLAIN };
        assert_eq!(table().aligned(look), "a          8  u1   3m\ngrößer  0.25  u,2   ?\n");
    }

    #[test]
    fn programs_get_every_column_plain_and_quoted() {
        assert_eq!(table().csv(true), "name,gpus,uid,at_ms\na,8,u1,180000\ngrößer,0.25,\"u,2\",\n");
        assert_eq!(csv_field("say \"hi\""), "\"say \"\"hi\"\"\"");
    }

    #[test]
    fn columns_have_the_names_that_they_are_asked_for_by() {
        let keys = ["team".to_owned(), "label:a,b".to_owned()];
        let mut table = Table::keyed(&keys, &[Column::number("GPUS", "gpus")]);
        table.row(["lab/nlp", "line\nbreak", "8"].map(Cell::new).into());
        assert_eq!(table.csv(true), "team,\"label:a,b\",gpus\nlab/nlp,\"line\nbreak\",8\n");
    }
}
