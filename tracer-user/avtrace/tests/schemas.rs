//! The schemas in `docs/` against those that the types have. With `AVTRACE_RENEW` in its environment, the test writes
//! them anew: `AVTRACE_RENEW=1 cargo test --package avtrace --features schema --test schemas`.

use std::{env, fs, path::Path};

use avtrace::{doctor::Diagnosis, explore};
use report::{Report, schema};

#[test]
fn the_documents_have_the_schemas_of_the_types() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for (name, text) in [
        ("report", schema::text::<Report>("urn:avtrace:report:1", "avtrace report")),
        (
            "explore",
            schema::text::<explore::Explored>("urn:avtrace:explore:1", "avtrace exploration"),
        ),
        ("doctor", schema::text::<Diagnosis>("urn:avtrace:doctor:1", "avtrace diagnosis")),
    ] {
        let file = docs.join(format!("{name}.schema.json"));
        if env::var_os("AVTRACE_RENEW").is_some() {
            fs::write(&file, &text).expect("the schema can be written");
        }
        let found = fs::read_to_string(&file).expect("the schema can be read");
        assert!(
            found == text,
            "{} is not that of the types: see the head of this test",
            file.display()
        );
    }
}
