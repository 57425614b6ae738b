//! Packages of Weft from Rust: a model's descriptor, and states that can't be misused. A step allocates nothing.
//!
//! Inputs are borrowed and outputs borrowed mutably, so that Rust itself sees to it that they don't overlap, which a
//! package asks for. Sizes and types are compared with the descriptor's at each call.

use std::alloc::{alloc, dealloc, handle_alloc_error, Layout};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// weft_model.h's structs, as they lie in memory.
pub mod raw {
    use super::{c_char, c_int, c_void};

    #[repr(C)]
    pub struct Tensor {
        pub name: *const c_char,
        pub dtype: i32,
        pub rank: u32,
        pub sizes: *const i64,
        pub bytes: usize,
    }

    #[repr(C)]
    pub struct Model {
        pub abi: u32,
        pub input_count: u32,
        pub output_count: u32,
        pub state_count: u32,
        pub name: *const c_char,
        pub target: *const c_char,
        pub fingerprint: u64,
        pub inputs: *const Tensor,
        pub outputs: *const Tensor,
        pub states: *const Tensor,
        pub state_bytes: usize,
        pub state_align: usize,
        pub saved_bytes: usize,
        pub reset: unsafe extern "C" fn(*mut c_void) -> c_int,
        pub step: unsafe extern "C" fn(*mut c_void, *const *const c_void, *const *mut c_void) -> c_int,
        pub run: unsafe extern "C" fn(*mut c_void, *const *const c_void, *const *mut c_void, usize) -> c_int,
        pub save: unsafe extern "C" fn(*const c_void, *mut c_void) -> c_int,
        pub restore: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int,
    }
}

const ABI: u32 = 1;
/// Inputs, or outputs, that a call has room for without allocating.
const MOST: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub enum Error {
    /// The descriptor is of another version of the interface.
    Abi(u32),
    /// The model has more inputs or outputs than a call has room for.
    TooMany(u32),
    /// So many inputs or outputs are taken, and so many were given.
    Count {
        what: &'static str,
        takes: usize,
        given: usize,
    },
    /// An input or output has so many elements, or is of that type (a weft_dtype), and was given as another.
    Size {
        what: &'static str,
        index: usize,
        takes: usize,
        given: usize,
    },
    Type {
        what: &'static str,
        index: usize,
        takes: i32,
        given: i32,
    },
    /// Saved bytes of another model, or of another length.
    OtherState,
    /// An index outside its table, or an integer divided by 0. The state is as it was before.
    BadValue,
    /// A status that this file doesn't know.
    Status(c_int),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Abi(abi) => write!(f, "the package is of ABI {abi}, and this program knows {ABI}"),
            Error::TooMany(count) => write!(f, "the model has {count} inputs or outputs, and there is room for {MOST}"),
            Error::Count { what, takes, given } => write!(f, "the model takes {takes} {what}s, but got {given}"),
            Error::Size { what, index, takes, given } => {
                write!(f, "{what} {index} has {takes} elements in so many steps, but got {given}")
            }
            Error::Type { what, index, takes, given } => {
                write!(f, "{what} {index} is of weft_dtype {takes}, but got {given}")
            }
            Error::OtherState => write!(f, "the state is not one of this model"),
            Error::BadValue => write!(f, "an index is outside its table, or an integer is divided by 0"),
            Error::Status(status) => write!(f, "status {status}"),
        }
    }
}

impl std::error::Error for Error {}

fn checked(status: c_int) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        2 => Err(Error::OtherState),
        3 => Err(Error::BadValue),
        other => Err(Error::Status(other)),
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A type that tensors have, and its weft_dtype.
pub trait Element: Copy + sealed::Sealed {
    const DTYPE: i32;
}

macro_rules! elements {
    ($($type:ty = $number:expr),*) => { $(
        impl sealed::Sealed for $type {}
        impl Element for $type { const DTYPE: i32 = $number; }
    )* };
}
elements!(i32 = 4, i64 = 5, f32 = 8, f64 = 9);

/// A slice that a model reads.
pub struct Input<'a> {
    data: *const c_void,
    count: usize,
    dtype: i32,
    life: PhantomData<&'a [u8]>,
}

impl<'a, T: Element> From<&'a [T]> for Input<'a> {
    fn from(slice: &'a [T]) -> Self {
        Input { data: slice.as_ptr().cast(), count: slice.len(), dtype: T::DTYPE, life: PhantomData }
    }
}

/// A slice that a model writes.
pub struct Output<'a> {
    data: *mut c_void,
    count: usize,
    dtype: i32,
    life: PhantomData<&'a mut [u8]>,
}

impl<'a, T: Element> From<&'a mut [T]> for Output<'a> {
    fn from(slice: &'a mut [T]) -> Self {
        Output { data: slice.as_mut_ptr().cast(), count: slice.len(), dtype: T::DTYPE, life: PhantomData }
    }
}

/// A tensor of a model: its name, its weft_dtype and its sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Described {
    pub name: &'static str,
    pub dtype: i32,
    pub sizes: &'static [i64],
}

impl Described {
    pub fn count(&self) -> usize {
        self.sizes.iter().map(|&size| size as usize).product()
    }
}

/// A packaged model, which is linked into the program and lives as long as it does.
#[derive(Clone, Copy)]
pub struct Model(&'static raw::Model);

// A descriptor is constant, and its functions write to states alone.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    /// # Safety
    /// `get` is a package's function NAME_model.
    pub unsafe fn of(get: unsafe extern "C" fn() -> *const raw::Model) -> Result<Model, Error> {
        let model = unsafe { &*get() };
        if model.abi != ABI {
            return Err(Error::Abi(model.abi));
        }
        let most = model.input_count.max(model.output_count);
        if most as usize > MOST {
            return Err(Error::TooMany(most));
        }
        Ok(Model(model))
    }

    pub fn target(&self) -> &'static str {
        unsafe { CStr::from_ptr(self.0.target) }.to_str().unwrap_or("?")
    }

    pub fn inputs(&self) -> impl ExactSizeIterator<Item = Described> {
        described(tensors(self.0.inputs, self.0.input_count))
    }

    pub fn outputs(&self) -> impl ExactSizeIterator<Item = Described> {
        described(tensors(self.0.outputs, self.0.output_count))
    }

    /// A state before the first step. Allocates.
    pub fn state(&self) -> State {
        // A state has a size above 0 and an alignment that is a power of two, in every package.
        let layout = Layout::from_size_align(self.0.state_bytes.max(1), self.0.state_align).expect("a state's layout");
        let memory = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let mut state = State { model: *self, memory: memory.cast(), layout };
        state.reset();
        state
    }
}

/// An empty list may be a null pointer in C.
fn tensors(first: *const raw::Tensor, count: u32) -> &'static [raw::Tensor] {
    if count == 0 {
        &[]
    } else {
        unsafe { std::slice::from_raw_parts(first, count as usize) }
    }
}

fn described(list: &'static [raw::Tensor]) -> impl ExactSizeIterator<Item = Described> {
    list.iter().map(|each| Described {
        name: unsafe { CStr::from_ptr(each.name) }.to_str().unwrap_or("?"),
        dtype: each.dtype,
        sizes: if each.rank == 0 { &[] } else { unsafe { std::slice::from_raw_parts(each.sizes, each.rank as usize) } },
    })
}

/// What a model remembers.
pub struct State {
    model: Model,
    memory: NonNull<c_void>,
    layout: Layout,
}

// It has its memory for itself, and is changed through &mut alone.
unsafe impl Send for State {}

impl State {
    /// To the state before the first step.
    pub fn reset(&mut self) {
        let status = unsafe { (self.model.0.reset)(self.memory.as_ptr()) };
        assert_eq!(status, 0, "reset fails on null pointers alone");
    }

    /// One step, on slices of a step's tensors.
    pub fn step(&mut self, inputs: &[Input], outputs: &mut [Output]) -> Result<(), Error> {
        self.run(inputs, outputs, 1)
    }

    /// So many steps, on stacks of a step's tensors. Nothing has changed where it fails, but for `BadValue`: then the
    /// steps before that one have been taken.
    pub fn run(&mut self, inputs: &[Input], outputs: &mut [Output], steps: usize) -> Result<(), Error> {
        let mut given = [std::ptr::null(); MOST];
        let mut made = [std::ptr::null_mut(); MOST];
        check("input", self.model.inputs(), inputs.iter().map(|each| (each.count, each.dtype)), steps)?;
        check("output", self.model.outputs(), outputs.iter().map(|each| (each.count, each.dtype)), steps)?;
        for (slot, each) in given.iter_mut().zip(inputs) {
            *slot = each.data;
        }
        for (slot, each) in made.iter_mut().zip(outputs.iter()) {
            *slot = each.data;
        }
        checked(unsafe { (self.model.0.run)(self.memory.as_ptr(), given.as_ptr(), made.as_ptr(), steps) })
    }

    /// Bytes for `restore` of any package of this model. Allocates.
    pub fn save(&self) -> Vec<u8> {
        let mut saved = vec![0; self.model.0.saved_bytes];
        let status = unsafe { (self.model.0.save)(self.memory.as_ptr(), saved.as_mut_ptr().cast()) };
        assert_eq!(status, 0, "a state that reset has prepared can be saved");
        saved
    }

    /// Goes on from what `save` gave. Where it fails the state is as it was before.
    pub fn restore(&mut self, saved: &[u8]) -> Result<(), Error> {
        checked(unsafe { (self.model.0.restore)(self.memory.as_ptr(), saved.as_ptr().cast(), saved.len()) })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        unsafe { dealloc(self.memory.as_ptr().cast(), self.layout) }
    }
}

fn check(
    what: &'static str,
    takes: impl ExactSizeIterator<Item = Described>,
    given: impl ExactSizeIterator<Item = (usize, i32)>,
    steps: usize,
) -> Result<(), Error> {
    if takes.len() != given.len() {
        return Err(Error::Count { what, takes: takes.len(), given: given.len() });
    }
    for (index, (each, (count, dtype))) in takes.zip(given).enumerate() {
        if each.dtype != dtype {
            return Err(Error::Type { what, index, takes: each.dtype, given: dtype });
        }
        if each.count().checked_mul(steps) != Some(count) {
            return Err(Error::Size { what, index, takes: each.count().saturating_mul(steps), given: count });
        }
    }
    Ok(())
}
