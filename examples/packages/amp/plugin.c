/* The packaged amplifier as an LV2 plug-in: a port for audio in and one for audio out, at 48 kHz.
 *
 * run() allocates nothing and calls nobody but the model. Both ports may be the same memory, as LV2 allows: the model's
 * inputs and outputs may not, so that each block is copied first.
 */
#include <lv2/core/lv2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amp.h"

#define URI "urn:weft:examples:amp"
#define RATE 48000.0
#define BLOCK 128

typedef struct {
  _Alignas(AMP_STATE_ALIGN) unsigned char state[AMP_STATE_BYTES];
  float block[BLOCK];
  const weft_model* model;
  const float* in;
  float* out;
} amplifier;

static LV2_Handle instantiate(const LV2_Descriptor* descriptor, double rate, const char* path,
                              const LV2_Feature* const* features) {
  (void)descriptor, (void)path, (void)features;
  const weft_model* model = amp_model();
  if (rate != RATE || model->abi != WEFT_MODEL_ABI) {
    fprintf(stderr, "%s: the amplifier was learned at %g samples a second, and can't run at %g\n", URI, RATE, rate);
    return NULL;
  }
  /* A size that is a multiple of the alignment, as aligned_alloc wants. */
  amplifier* self = aligned_alloc(_Alignof(amplifier), sizeof(amplifier));
  if (self == NULL) return NULL;
  memset(self, 0, sizeof *self);
  self->model = model;
  model->reset(self->state);
  return self;
}

static void connect_port(LV2_Handle handle, uint32_t port, void* data) {
  amplifier* self = handle;
  if (port == 0) self->in = data;
  if (port == 1) self->out = data;
}

static void activate(LV2_Handle handle) {
  amplifier* self = handle;
  self->model->reset(self->state);
}

static void run(LV2_Handle handle, uint32_t samples) {
  amplifier* self = handle;
  for (uint32_t at = 0; at < samples; at += BLOCK) {
    const uint32_t count = samples - at < BLOCK ? samples - at : BLOCK;
    memcpy(self->block, self->in + at, count * sizeof(float));
    const void* inputs[] = {self->block};
    void* outputs[] = {self->out + at};
    self->model->run(self->state, inputs, outputs, count);
  }
}

static void cleanup(LV2_Handle handle) { free(handle); }

static const LV2_Descriptor descriptor = {URI, instantiate, connect_port, activate, run, NULL, cleanup, NULL};

LV2_SYMBOL_EXPORT const LV2_Descriptor* lv2_descriptor(uint32_t index) { return index == 0 ? &descriptor : NULL; }
