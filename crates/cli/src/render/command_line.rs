//! What is wrong with a command line, in our own words and in the form of every other error.
//!
//! The parser knows what is wrong and what would be right; how it says so is its own. What we have no words for is left to it.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Error};

use crate::args::Cli;
use crate::render::problem::Usage;

/// What is wrong and what to type instead; `None` for help, the version, and what only the parser can say.
pub(crate) fn understood(error: &Error, words: &[String]) -> Option<Usage> {
    let help = help_of(words);
    let arg = || text(error, ContextKind::InvalidArg).unwrap_or_else(|| "an argument".to_owned());
    let (what, next) = match error.kind() {
        ErrorKind::UnknownArgument => {
            let near = text(error, ContextKind::SuggestedArg).map(|near| format!("did you mean {near}? "));
            let given = arg();
            let what = if given.starts_with('-') {
                format!("there is no option {given}")
            } else {
                format!("{given:?} is one argument too many")
            };
            (what, format!("{}{help}", near.unwrap_or_default()))
        }
        ErrorKind::InvalidSubcommand => {
            let given = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
            let near =
                text(error, ContextKind::SuggestedSubcommand).map(|near| format!("did you mean {near}? "));
            let all = "wharf --help lists all commands";
            (format!("there is no command {given:?}"), format!("{}{all}", near.unwrap_or_default()))
        }
        ErrorKind::InvalidValue => invalid_value(error, &arg(), &help),
        ErrorKind::ValueValidation => {
            let given = text(error, ContextKind::InvalidValue).unwrap_or_default();
            (format!("{given:?} is no value of {}", arg()), format!("{}; {help}", expected(error)))
        }
        ErrorKind::MissingRequiredArgument => {
            (format!("{} is missing", listed(error, ContextKind::InvalidArg)), help)
        }
        ErrorKind::ArgumentConflict => {
            let other = listed(error, ContextKind::PriorArg);
            if other.is_empty() || other == arg() {
                (format!("{} is given twice", arg()), help)
            } else {
                (format!("{} cannot be given together with {other}", arg()), help)
            }
        }
        ErrorKind::MissingSubcommand => ("what to do is missing".to_owned(), help),
        _ => return None,
    };
    Some(Usage { what, next })
}

/// A word that is not among those that an argument takes, or no word at all.
fn invalid_value(error: &Error, arg: &str, help: &str) -> (String, String) {
    let given = text(error, ContextKind::InvalidValue).unwrap_or_default();
    let near = text(error, ContextKind::SuggestedValue).map(|near| format!("did you mean {near}? "));
    let valid = listed(error, ContextKind::ValidValue);
    let one_of = if valid.is_empty() { help.to_owned() } else { format!("one of: {valid}") };
    let what = if given.is_empty() {
        format!("{arg} has no value")
    } else {
        format!("{given:?} is no value of {arg}")
    };
    (what, format!("{}{one_of}", near.unwrap_or_default()))
}

/// What a value should have been: our own readers say it, numbers are told here.
fn expected(error: &Error) -> String {
    let Some(source) = std::error::Error::source(error) else { return "it cannot be read".to_owned() };
    if source.is::<std::num::ParseIntError>() {
        return "a whole number is needed".to_owned();
    }
    if source.is::<std::num::ParseFloatError>() {
        return "a number is needed".to_owned();
    }
    let said = source.to_string();
    // Ranges of numbers are checked by the parser itself.
    match said.split_once(" is not in ") {
        Some((_, range)) => format!("a whole number from {} is needed", range.replace("..=", " to ")),
        None if said.contains("digit") => "a whole number is needed".to_owned(),
        None => said,
    }
}

fn help_of(words: &[String]) -> String {
    let command = Cli::command();
    let known = |word: &&String| command.get_subcommands().any(|command| command.get_name() == word.as_str());
    match words.iter().skip(1).find(known) {
        Some(command) => format!("wharf {command} --help shows what it takes"),
        None => "wharf --help lists all commands".to_owned(),
    }
}

fn text(error: &Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

fn listed(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}
