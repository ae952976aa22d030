// typed_reader: messages from a terminal or a pipe, and the files that they name; by the process that may open them.
#ifndef WEFT_TYPED_READER_H
#define WEFT_TYPED_READER_H
#include "app/dropped.h"
#include "app/edit.h"
#include "app/typed.h"

typedef struct typed_reader {
  struct typed_how how;
  edit *edit;                          // NULL: lines come as they are
  // what the last line names, each until it was opened: after /save, and what may be read
  char *to_write;
  dropped_list to_read;
} typed_reader;

char *typed_history_made(void);        // the path of the history, whose folders are there; NULL: none. free()
// As typed_line of typed.h.
enum input reader_message(typed_reader *r, const char *prompt, const char *begin, str *out);
// Notes which files a line names, and what may be done with them. Whether any of them was dropped.
bool reader_note_files(typed_reader *r, const char *line);
// As typed_read and typed_write.
int reader_read(typed_reader *r, uint64_t i, char **text, size_t *n, error *err);
int reader_write(typed_reader *r, const char *text, size_t n, error *err);
#endif
