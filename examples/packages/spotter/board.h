/* What the spotter asks of the board. Here its files and its words go to the debugger (Arm's semihosting), which an
 * emulator is; a product would have a microphone, and a light. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Files of the debugger's machine, in its current folder. A handle is negative where a file can't be opened. */
int board_open(const char* name, int is_output);
/* How many of the bytes were read; fewer at the file's end. */
size_t board_read(int file, void* data, size_t bytes);
/* Whether all was written. */
int board_write(int file, const void* data, size_t bytes);
void board_say(const char* text);

/* Bytes of the stack that have been in use since the start. */
size_t board_stack_used(void);

int main(void);
