//! The window that a user orders: a file, standard input, or flags.

use std::path::Path;

use wharf_api::file::booking::{BookingFile, BookingFlags, load_booking, parse_booking};

use super::files::standard_input;
use crate::args::{BookArgs, BookFlagArgs};
use crate::render::problem::Usage;

/// Reads the booking.
pub(crate) fn given(args: BookArgs) -> anyhow::Result<BookingFile> {
    let BookArgs { file, file_flag, flags, output: _ } = args;
    let flags = BookingFlags::from(flags);
    let BookingFlags { name, tenant, tasks, gpus, model, within, from, lasts, by } = &flags;
    let described =
        [name, tenant, tasks, gpus, model, within, from, lasts, by].into_iter().any(Option::is_some);
    match (file.or(file_flag), described) {
        (Some(path), false) if path == Path::new("-") => {
            Ok(parse_booking("standard input", &standard_input("cannot read standard input")?)?)
        }
        (Some(path), false) => Ok(load_booking(&path)?),
        (Some(path), true) => Err(Usage {
            what: format!("{} and flags both say what to book", path.display()),
            next: "give either the file or the flags".to_owned(),
        }
        .into()),
        (None, true) => Ok(flags.booking()?),
        (None, false) => Err(Usage {
            what: "nothing says what to book".to_owned(),
            next: "wharf book --tenant lab/nlp --gpus 8 --from +2h --for 1h, or wharf book FILE".to_owned(),
        }
        .into()),
    }
}

impl From<BookFlagArgs> for BookingFlags {
    fn from(args: BookFlagArgs) -> Self {
        Self {
            name: args.name,
            tenant: args.tenant,
            tasks: args.tasks,
            gpus: args.gpus,
            model: args.model,
            within: args.within,
            from: args.from,
            lasts: args.lasts,
            by: args.by,
        }
    }
}
