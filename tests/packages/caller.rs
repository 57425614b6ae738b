// A packaged GRU of one input and eight units, called from Rust: the descriptor is a struct of C.
use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
struct Tensor {
    name: *const c_char,
    dtype: i32,
    rank: u32,
    sizes: *const i64,
    bytes: usize,
}

#[repr(C)]
struct Model {
    abi: u32,
    input_count: u32,
    output_count: u32,
    state_count: u32,
    name: *const c_char,
    target: *const c_char,
    fingerprint: u64,
    inputs: *const Tensor,
    outputs: *const Tensor,
    states: *const Tensor,
    state_bytes: usize,
    state_align: usize,
    saved_bytes: usize,
    reset: extern "C" fn(*mut c_void) -> c_int,
    step: extern "C" fn(*mut c_void, *const *const c_void, *const *mut c_void) -> c_int,
    run: extern "C" fn(*mut c_void, *const *const c_void, *const *mut c_void, usize) -> c_int,
    save: extern "C" fn(*const c_void, *mut c_void) -> c_int,
    restore: extern "C" fn(*mut c_void, *const c_void, usize) -> c_int,
}

extern "C" {
    fn amp_model() -> *const Model;
}

fn main() {
    let model = unsafe { &*amp_model() };
    assert_eq!(model.abi, 1);
    let layout = std::alloc::Layout::from_size_align(model.state_bytes, model.state_align).unwrap();
    let state = unsafe { std::alloc::alloc(layout) } as *mut c_void;
    assert_eq!((model.reset)(state), 0);
    let (x, mut y) = ([0.5f32; 4], [0f32; 32]);
    let inputs = [x.as_ptr() as *const c_void];
    let outputs = [y.as_mut_ptr() as *mut c_void];
    assert_eq!((model.run)(state, inputs.as_ptr(), outputs.as_ptr(), 4), 0);
    println!("{}", y[24]);
}
