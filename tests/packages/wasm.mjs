// What driver.c does, for a package linked as a WebAssembly module: the host of a model in a browser or in Node.
// Usage: node wasm.mjs MODULE NAME STEPS INPUT OUTPUT
import fs from 'fs';

const [path, name, steps, input, output] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(fs.readFileSync(path), {});
const { memory, __indirect_function_table: table, __heap_base: heap } = instance.exports;
memory.grow(64);
const view = () => new DataView(memory.buffer);
const word = (at) => view().getUint32(at, true);
let next = heap.value;
const reserve = (bytes) => {
  const at = (next + 63) & ~63;
  next = at + bytes;
  return at;
};

// weft_model with pointers of 32 bits.
const at = instance.exports[`${name}_model`]();
const [abi, inputs, outputs] = [word(at), word(at + 4), word(at + 8)];
const [inputTensors, outputTensors] = [word(at + 32), word(at + 36)];
const stateBytes = word(at + 44);
const [reset, step, run] = [word(at + 56), word(at + 60), word(at + 64)].map((f) => table.get(f));
if (abi !== 1) throw new Error('another ABI');
const bytesOf = (tensors, i) => word(tensors + i * 20 + 16);

const T = Number(steps);
const stacks = (tensors, count) => [...Array(count).keys()].map((i) => reserve(T * bytesOf(tensors, i) + 1));
const [given, made, again] = [stacks(inputTensors, inputs), stacks(outputTensors, outputs), stacks(outputTensors, outputs)];
let data = fs.readFileSync(input);
given.forEach((place, i) => {
  const size = T * bytesOf(inputTensors, i);
  new Uint8Array(memory.buffer, place, size).set(data.subarray(0, size));
  data = data.subarray(size);
});
const [state, pointersIn, pointersOut] = [reserve(stateBytes), reserve(4 * inputs + 4), reserve(4 * outputs + 4)];
const point = (pointers, places, tensors, t) =>
  places.forEach((place, i) => view().setUint32(pointers + 4 * i, place + t * bytesOf(tensors, i), true));
const expect = (status, wanted, what) => {
  if (status !== wanted) throw new Error(`${what} gives ${status}`);
};

expect(step(state, pointersIn, pointersOut), 2, 'a step without a state');
expect(reset(state), 0, 'reset');
for (let t = 0; t < T; ++t) {
  point(pointersIn, given, inputTensors, t);
  point(pointersOut, made, outputTensors, t);
  expect(step(state, pointersIn, pointersOut), 0, 'step');
}
expect(reset(state), 0, 'reset');
point(pointersIn, given, inputTensors, 0);
point(pointersOut, again, outputTensors, 0);
expect(run(state, pointersIn, pointersOut, T), 0, 'run');
const bytes = (places) =>
  Buffer.concat(places.map((place, i) => Buffer.from(memory.buffer, place, T * bytesOf(outputTensors, i))));
if (!bytes(made).equals(bytes(again))) throw new Error('run differs from steps');
fs.writeFileSync(output, bytes(made));
