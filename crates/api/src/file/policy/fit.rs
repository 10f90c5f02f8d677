//! Whether promises fit: into the own limit, and into what the tenant above is promised.
//!
//! A tenant that is not metered in a resource (`unlimited`, or CPU and memory of which it says nothing) promises nothing
//! by itself; what its children are promised then counts for the tenant above it. Worked example: lab has 8 GPUs,
//! lab/a is unlimited, lab/a/x has 12. Lab owes 12 and has 8, two levels up or not.

use wharf_engine::model::policy::{Amount, Quota};

use super::super::{At, Fault, text};
use super::quota::{Book, Line, Pair};

/// One resource that promises are made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meter<'a> {
    /// GPUs of one model, or of all.
    Gpus(Option<&'a str>),
    Cpu,
    Memory,
}

impl<'a> Meter<'a> {
    /// The GPUs that a book counts.
    pub(super) fn gpus(book: &'a Book) -> Vec<Self> {
        if book.pools.is_empty() {
            return vec![Self::Gpus(None)];
        }
        book.pools.iter().map(|model| Self::Gpus(Some(model))).collect()
    }

    /// Everything that a book counts.
    pub(super) fn all(book: &'a Book) -> Vec<Self> {
        let mut meters = Self::gpus(book);
        meters.extend([Self::Cpu, Self::Memory]);
        meters
    }

    /// Promise and limit as written.
    pub(super) fn pair(self, line: &Line) -> Pair {
        match self {
            Self::Gpus(model) => line.gpus(model),
            Self::Cpu => line.cpu.unwrap_or_default(),
            Self::Memory => line.memory.unwrap_or_default(),
        }
    }

    /// Promise and limit as the engine will see them.
    pub(super) fn quota(self, line: &Line) -> Quota {
        let said = match self {
            Self::Gpus(_) => true,
            Self::Cpu => line.cpu.is_some(),
            Self::Memory => line.memory.is_some(),
        };
        if said { self.pair(line).quota() } else { Quota::UNMETERED }
    }

    /// A bare amount: `8`, `0.5`, `64`, `512GiB`.
    pub(super) fn number(self, amount: u64) -> String {
        match self {
            Self::Gpus(_) => text::gpu_text(amount),
            Self::Cpu if amount.is_multiple_of(1000) => (amount / 1000).to_string(),
            Self::Cpu => format!("{amount}m"),
            Self::Memory => text::size_text(amount),
        }
    }

    /// An amount with what it is an amount of: `8 h100 GPUs`, `64 cores`, `512GiB of memory`.
    pub(super) fn amount(self, amount: u64) -> String {
        let number = self.number(amount);
        match self {
            Self::Gpus(model) => {
                let model = model.map_or_else(String::new, |model| format!("{model} "));
                format!("{number} {model}{}", if number == "1" { "GPU" } else { "GPUs" })
            }
            Self::Cpu => format!("{number} {}", if number == "1" { "core" } else { "cores" }),
            Self::Memory => format!("{number} of memory"),
        }
    }
}

/// What is owed to each tenant of a book in one resource.
pub(super) struct Owed {
    /// To the tenant: its own promise, or where it is not metered what is owed below it.
    pub(super) to: Vec<u64>,
    /// To its children together.
    pub(super) below: Vec<u64>,
    /// To the tenants at the top together.
    pub(super) total: u64,
}

impl Owed {
    pub(super) fn of(book: &Book, meter: Meter<'_>) -> Self {
        let count = book.lines.len();
        let mut owed = Self { to: vec![0; count], below: vec![0; count], total: 0 };
        // Children stand behind their parents, so that from the end every sum is complete when it is read. Memory
        // of 10,000 tenants may pass 64 bits; such a sum fits nowhere, whatever it is exactly.
        for (index, line) in book.lines.iter().enumerate().rev() {
            owed.to[index] = match meter.quota(line).guaranteed {
                Amount::Of(promised) => promised,
                Amount::Unlimited => owed.below[index],
            };
            let sum = line.parent.map_or(&mut owed.total, |parent| &mut owed.below[parent]);
            *sum = sum.saturating_add(owed.to[index]);
        }
        owed
    }
}

/// A promise that cannot be kept whatever the fleet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit<'a> {
    /// More is owed to a tenant than its limit lets it use.
    AboveLimit { tenant: usize, meter: Meter<'a>, owed: u64, limit: u64 },
    /// More is owed to its children than a tenant has.
    AboveParent { tenant: usize, meter: Meter<'a>, owed: u64, has: u64 },
}

/// Every misfit, in the order of the file.
pub(super) fn misfits(book: &Book) -> Vec<Misfit<'_>> {
    let meters = Meter::all(book);
    let owed: Vec<Owed> = meters.iter().map(|meter| Owed::of(book, *meter)).collect();
    let mut misfits = Vec::new();
    for (index, line) in book.lines.iter().enumerate() {
        for (meter, owed) in meters.iter().zip(&owed) {
            misfits.extend(misfit(index, *meter, meter.quota(line), owed));
        }
    }
    misfits
}

fn misfit<'a>(tenant: usize, meter: Meter<'a>, quota: Quota, owed: &Owed) -> Option<Misfit<'a>> {
    match quota {
        Quota { limit: Amount::Of(limit), .. } if owed.to[tenant] > limit => {
            Some(Misfit::AboveLimit { tenant, meter, owed: owed.to[tenant], limit })
        }
        Quota { guaranteed: Amount::Of(has), .. } if owed.below[tenant] > has => {
            Some(Misfit::AboveParent { tenant, meter, owed: owed.below[tenant], has })
        }
        Quota { .. } => None,
    }
}

impl Misfit<'_> {
    /// The line that has to change.
    pub(super) fn at(self, book: &Book) -> Option<At> {
        let (line, placed) = match self {
            Self::AboveLimit { tenant, meter, .. } => {
                (&book.lines[tenant], meter.pair(&book.lines[tenant]).limit)
            }
            Self::AboveParent { tenant, meter, .. } => {
                (&book.lines[tenant], meter.pair(&book.lines[tenant]).guaranteed)
            }
        };
        placed.and_then(|placed| placed.at).or(line.at)
    }

    pub(super) fn what(self, book: &Book) -> String {
        match self {
            Self::AboveLimit { tenant, meter, owed, .. } => {
                let line = &book.lines[tenant];
                let who = match meter.quota(line).guaranteed {
                    Amount::Of(_) => format!("{} is promised", line.path),
                    Amount::Unlimited => format!("children of {} are promised", line.path),
                };
                format!("{who} {}, more than its limit", meter.amount(owed))
            }
            Self::AboveParent { tenant, meter, owed, has } => {
                let path = &book.lines[tenant].path;
                let (has, owed) = (meter.amount(has), meter.number(owed));
                format!("{path} is promised {has}, its children {owed} together")
            }
        }
    }

    /// As an error of the file.
    pub(super) fn fault(self, book: &Book) -> Fault {
        let allowed = match self {
            Self::AboveLimit { meter, limit, .. } => {
                format!("guaranteed of at most {}", meter.number(limit))
            }
            Self::AboveParent { meter, owed, .. } => {
                format!("guaranteed of at least {} or unlimited", meter.number(owed))
            }
        };
        Fault::new(self.at(book), self.what(book)).allowed(allowed)
    }
}
