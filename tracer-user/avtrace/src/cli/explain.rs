//! The command line of `explain`.

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  avtrace explain               list the topics
  avtrace explain AV1           a pattern, by its identifier in SARIF and JUnit
  avtrace explain lost-update   the same, by its name
  avtrace explain likely        a class
  avtrace explain callees       a reason, by its kind in JSON reports

Exit status: 0, 2 for an unknown topic.";

/// Options of `explain`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ExplainArgs {
    /// The topic: a pattern, a class or a reason. Without one, the topics are listed.
    #[arg(value_name = "TOPIC")]
    pub topic: Vec<String>,
}
