//! The `avtrace` command: parses the command line, runs, writes the report, exits.

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    process::ExitCode,
};

use tracer_user::{
    cli::{Cli, ColorArg, Command, Format, RegionsArg, RunArgs},
    probes::watch::WatchSpec,
    report::{self, ColorChoice, Destination, TextOptions},
    session::{self, Outcome, RunOptions, list::Listing, spec::Spec},
};

fn main() -> ExitCode {
    let cli = Cli::parse_in_order();
    let result = match cli.command {
        Some(Command::Run(arguments)) => run_or_list(&arguments),
        Some(Command::Probes(arguments)) => list_probes(&arguments),
        None => run_or_list(&cli.run),
    };
    let status = result.unwrap_or_else(|Failure { message, status }| {
        eprintln!("avtrace: error: {}", report::printable(&message));
        status
    });
    ExitCode::from(status)
}

/// What is printed in one line before avtrace exits.
struct Failure {
    message: String,
    status: u8,
}

fn run_or_list(arguments: &RunArgs) -> Result<u8, Failure> {
    if arguments.list_regions {
        let listing = inspect(arguments)?;
        return print(arguments, &listing.regions());
    }
    run(arguments)
}

fn list_probes(arguments: &RunArgs) -> Result<u8, Failure> {
    let listing = inspect(arguments)?;
    let text = match arguments.format {
        Format::Text => listing.probes(),
        Format::Json => listing
            .probes_as_json()
            .map_err(|error| Failure { message: error.to_string(), status: 1 })?,
    };
    print(arguments, &text)
}

fn inspect(arguments: &RunArgs) -> Result<Listing, Failure> {
    session::inspect(&run_options(arguments)?)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })
}

/// Writes what was asked for instead of a run: to standard output, which no program uses.
fn print(arguments: &RunArgs, text: &str) -> Result<u8, Failure> {
    let written = match &arguments.output {
        Some(path) => std::fs::write(path, text),
        None => std::io::stdout().write_all(text.as_bytes()),
    };
    match written {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure { message: format!("cannot write the list: {error}"), status: 1 })
        }
        _ => Ok(0),
    }
}

fn run_options(arguments: &RunArgs) -> Result<RunOptions, Failure> {
    let usage = |message| Failure { message, status: 2 };
    let (mut watch, mut rules) = (Vec::new(), Vec::new());
    for path in &arguments.spec {
        let spec = Spec::read(path).map_err(|error| usage(error.to_string()))?;
        watch.extend(spec.watch);
        rules.extend(spec.rules);
    }
    for spec in &arguments.watch {
        watch.push(spec.parse::<WatchSpec>().map_err(|error| usage(error.to_string()))?);
    }
    rules.extend(arguments.rules.iter().cloned());
    Ok(RunOptions {
        command: arguments.program.clone(),
        watch,
        rules,
        checker: checker::Options {
            regions: match arguments.regions {
                RegionsArg::Outermost => checker::Regions::Outermost,
                RegionsArg::All => checker::Regions::All,
            },
            ..checker::Options::live()
        },
        buffer_bytes: arguments.buffer << 20,
        as_root: arguments.as_root,
        debug_bpf: arguments.debug_bpf,
        perf_probes: arguments.perf_probes,
    })
}

fn run(arguments: &RunArgs) -> Result<u8, Failure> {
    let options = run_options(arguments)?;
    let destination = match &arguments.output {
        Some(path) => Destination::File(path.clone()),
        None => Destination::Stderr,
    };
    check_destination(&destination)?;
    let Outcome { ending, report } = session::run(&options)
        .map_err(|error| Failure { message: error.to_string(), status: error.exit_status() })?;
    let internal = |message| Failure { message, status: 1 };
    let bytes = match arguments.format {
        Format::Text => report::text::render(&report, &text_options(arguments)),
        Format::Json => {
            report::json::render(&report).map_err(|error| internal(error.to_string()))?
        }
    };
    if let Err(error) = report::write_output(&destination, bytes.as_bytes()) {
        // Better in the wrong place than lost.
        if destination != Destination::Stderr {
            let _ = report::write_output(&Destination::Stderr, bytes.as_bytes());
        }
        return Err(internal(error.to_string()));
    }
    if report.has_findings() {
        return Ok(arguments.error_exitcode);
    }
    // As a shell shows it: the low byte.
    Ok(ending.shell_status() as u8)
}

/// Refuses a place for the report that cannot work before the program has run for nothing.
fn check_destination(destination: &Destination) -> Result<(), Failure> {
    let Destination::File(path) = destination else { return Ok(()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let problem = if path.is_dir() {
        "it is a directory"
    } else if parent.is_some_and(|parent| !parent.is_dir()) {
        "its directory does not exist"
    } else {
        return Ok(());
    };
    let message = format!("cannot write the report to `{}`: {problem}", path.display());
    Err(Failure { message, status: 1 })
}

fn text_options(arguments: &RunArgs) -> TextOptions {
    let choice = match arguments.color {
        ColorArg::Auto => ColorChoice::Auto,
        ColorArg::Always => ColorChoice::Always,
        ColorArg::Never => ColorChoice::Never,
    };
    let is_terminal = arguments.output.is_none() && stderr().is_terminal();
    TextOptions {
        color: report::resolve_color(choice, is_terminal, |name| std::env::var_os(name)),
        base_dir: std::env::current_dir().ok().map(|path| path.to_string_lossy().into_owned()),
        ..TextOptions::default()
    }
}
