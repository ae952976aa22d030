// typed_reader: reads messages from a terminal or a pipe, and the files that they name; runs in the process that may
// open them.
#ifndef WEFT_TYPED_READER_H
#define WEFT_TYPED_READER_H
#include "app/dropped.h"
#include "app/edit.h"
#include "app/typed.h"

typedef struct typed_reader {
  struct typed_how how;
  edit *edit;                          // NULL: lines are read without editing
  // the files of the last line, each until it was opened: after /save, and for reading
  char *to_write;
  dropped_list to_read;
} typed_reader;

char *typed_history_made(void);        // the path of the history, whose folders exist; NULL: none. free()
// See typed_line of typed.h.
enum input reader_message(typed_reader *r, const char *prompt, const char *begin, str *out);
// Records which files a line names, for reading or writing. Returns whether any was dropped.
bool reader_note_files(typed_reader *r, const char *line);
// See typed_read and typed_write of typed.h.
int reader_read(typed_reader *r, uint64_t i, char **text, size_t *n, error *err);
int reader_write(typed_reader *r, const char *text, size_t n, error *err);
#endif
