//! The packaged amplifier in a pipe: raw floats at 48 kHz from standard input to standard output, 64 at a time. Half-way
//! it saves its state and goes on with another one that restores it.

mod weft;

use std::io::{self, Read, Write};

extern "C" {
    fn amp_model() -> *const weft::raw::Model;
}

/// What a caller may do wrong is an error in words.
fn refusals(model: weft::Model) {
    let mut state = model.state();
    let (x, mut y, mut wide) = ([0f32; 4], [0f32; 4], [0f64; 4]);
    let errors = [
        state.run(&[], &mut [(&mut y[..]).into()], 4),
        state.run(&[(&x[..3]).into()], &mut [(&mut y[..]).into()], 4),
        state.run(&[(&x[..]).into()], &mut [(&mut wide[..]).into()], 4),
        state.run(&[(&x[..]).into()], &mut [(&mut y[..]).into()], usize::MAX),
        state.restore(&[0; 3]),
    ];
    for error in errors {
        eprintln!("{}", error.expect_err("was taken"));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = unsafe { weft::Model::of(amp_model) }?;
    if std::env::args().nth(1).as_deref() == Some("--wrong") {
        refusals(model);
        return Ok(());
    }
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    let x: Vec<f32> = bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    let mut y = vec![0f32; x.len()];
    let mut state = model.state();
    let half = x.len() / 128;
    for (i, (given, made)) in x.chunks(64).zip(y.chunks_mut(64)).enumerate() {
        if i == half {
            let saved = state.save();
            state = model.state();
            state.restore(&saved)?;
        }
        let steps = given.len();
        state.run(&[given.into()], &mut [made.into()], steps)?;
    }
    let out: Vec<u8> = y.iter().flat_map(|value| value.to_le_bytes()).collect();
    io::stdout().write_all(&out)?;
    let names: Vec<_> =
        model.inputs().chain(model.outputs()).map(|each| format!("{} {:?}", each.name, each.sizes)).collect();
    eprintln!("{} samples on {}: {}", x.len(), model.target(), names.join(" -> "));
    Ok(())
}
