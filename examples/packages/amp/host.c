/* A host that tries an LV2 plug-in of one audio input and one output: the whole sound in one block, then blocks of odd
 * sizes, 0 and 1 among them, then blocks in place. All must give the same bits.
 *
 * Usage: host PLUGIN.so IN OUT   (files of raw floats at 48 kHz)
 */
#include <dlfcn.h>
#include <lv2/core/lv2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char* why) {
  fprintf(stderr, "host: %s\n", why);
  exit(1);
}

static float* floats(size_t count) {
  float* memory = calloc(count + 1, sizeof(float));
  if (memory == NULL) fail("there is no memory");
  return memory;
}

/* All floats of a file. */
static float* read_all(const char* path, uint32_t* count) {
  FILE* file = fopen(path, "rb");
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) fail("the input can't be read");
  *count = (uint32_t)((size_t)ftell(file) / sizeof(float));
  rewind(file);
  float* samples = floats(*count);
  if (fread(samples, sizeof(float), *count, file) != *count) fail("the input is short");
  fclose(file);
  return samples;
}

/* Runs blocks of these sizes, over and over; of the whole at once where there are none. */
static void run_blocks(const LV2_Descriptor* plugin, LV2_Handle handle, const float* in, float* out, uint32_t count,
                       const uint32_t* sizes, size_t size_count) {
  plugin->activate(handle);
  uint32_t at = 0;
  for (size_t i = 0; at < count; ++i) {
    uint32_t size = size_count == 0 ? count : sizes[i % size_count];
    if (size > count - at) size = count - at;
    plugin->connect_port(handle, 0, (void*)(in + at));
    plugin->connect_port(handle, 1, out + at);
    plugin->run(handle, size);
    at += size;
  }
  if (plugin->deactivate != NULL) plugin->deactivate(handle);
}

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: host PLUGIN.so IN OUT");
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fail(dlerror());
  const LV2_Descriptor* (*get)(uint32_t) = NULL;
  *(void**)&get = dlsym(library, "lv2_descriptor");
  if (get == NULL || get(0) == NULL || get(1) != NULL) fail("it is no library of one plug-in");
  const LV2_Descriptor* plugin = get(0);
  const LV2_Feature* const features[] = {NULL};
  if (plugin->instantiate(plugin, 44100.0, ".", features) != NULL) fail("it takes a rate that it was not made for");
  LV2_Handle handle = plugin->instantiate(plugin, 48000.0, ".", features);
  if (handle == NULL) fail("it can't be made");

  uint32_t count = 0;
  float* in = read_all(argv[2], &count);
  float *whole = floats(count), *blocks = floats(count), *place = floats(count);
  static const uint32_t sizes[] = {0, 1, 7, 128, 0, 129, 1, 333, 64, 1021};
  const size_t bytes = count * sizeof(float);
  run_blocks(plugin, handle, in, whole, count, NULL, 0);
  run_blocks(plugin, handle, in, blocks, count, sizes, sizeof sizes / sizeof *sizes);
  memcpy(place, in, bytes);
  run_blocks(plugin, handle, place, place, count, sizes, sizeof sizes / sizeof *sizes);
  if (memcmp(whole, blocks, bytes) != 0) fail("blocks differ from the whole");
  if (memcmp(whole, place, bytes) != 0) fail("blocks in place differ from the whole");
  plugin->cleanup(handle);

  FILE* file = fopen(argv[3], "wb");
  if (file == NULL || fwrite(whole, 1, bytes, file) != bytes || fclose(file) != 0) fail("the output can't be written");
  printf("%s: %u samples, blocks and whole give the same bits\n", plugin->URI, (unsigned)count);
  return 0;
}
