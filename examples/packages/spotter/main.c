/* Listens to a second of sound, 10 ms at a time, as often as the input has another, and says the word. Reads floats at
 * 8 kHz from words.raw, and writes the scores of each second's last 10 ms to scores.raw. */
#include "board.h"
#include "spotter.h"

enum { kHop = 80, kSteps = 100, kWords = 5 };

static const char* const words[kWords] = {"nothing", "up", "down", "hello", "stop"};
static _Alignas(SPOTTER_STATE_ALIGN) unsigned char state[SPOTTER_STATE_BYTES];
static float samples[kHop], scores[kWords];

/* Whether there was another second. */
static int listen(const weft_model* model, int in) {
  const void* inputs[] = {samples};
  void* outputs[] = {scores};
  model->reset(state);
  for (int t = 0; t < kSteps; ++t) {
    if (board_read(in, samples, sizeof samples) != sizeof samples) return 0;
    if (model->step(state, inputs, outputs) != WEFT_OK) return 0;
  }
  return 1;
}

static void say_number(size_t number) {
  char text[12] = {0};
  int at = sizeof text - 1;
  do text[--at] = (char)('0' + number % 10);
  while ((number /= 10) != 0);
  board_say(text + at);
}

int main(void) {
  const weft_model* model = spotter_model();
  if (model->abi != WEFT_MODEL_ABI || model->inputs[0].bytes != sizeof samples ||
      model->outputs[0].bytes != sizeof scores) {
    board_say("the package is not one of this program's\n");
    return 1;
  }
  const int in = board_open("words.raw", 0), out = board_open("scores.raw", 1);
  if (in < 0 || out < 0) {
    board_say("words.raw can't be read, or scores.raw not be written\n");
    return 1;
  }
  while (listen(model, in)) {
    int best = 0;
    for (int word = 1; word < kWords; ++word)
      if (scores[word] > scores[best]) best = word;
    board_say(words[best]);
    board_say("\n");
    if (!board_write(out, scores, sizeof scores)) return 1;
  }
  board_say("stack ");
  say_number(board_stack_used());
  board_say("\n");
  return 0;
}
