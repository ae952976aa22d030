// log: the server's log for operators, a line per event: a finished request, a model that is loaded or unloaded, a
// warning. A separate thread writes the lines, so a full pipe delays neither answers nor loading; if it stays full,
// lines are dropped and counted.
//
// No line contains text of a prompt or an answer, or a key: reasons of refusals omit quotations (fault.reason).
#ifndef WEFT_SERVE_LOG_H
#define WEFT_SERVE_LOG_H
#include "base/str.h"

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };
struct log_options {
  const char *path;                    // file to append to; NULL: stderr
  bool json;                           // each line is a JSON object; otherwise time, words and name=value
  enum log_level level;
};
typedef struct server_log server_log;
// Opens the file; call it while the process may do that.
int log_open(const struct log_options *o, server_log **out, error *err);
int log_start(server_log *l, error *err);        // starts the thread
void log_close(server_log *l);                   // writes what is left; NULL is fine
bool log_is_json(const server_log *l);
bool log_takes(const server_log *l, enum log_level level);

// A line: log_begin, members in order, log_write.
typedef struct log_line { const server_log *l; str text; } log_line;
log_line log_begin(const server_log *l, const char *event);
void log_word(log_line *e, const char *name, const char *value);         // without its name, except in JSON
void log_text(log_line *e, const char *name, const char *value);         // NULL or "": omitted
void log_count(log_line *e, const char *name, int64_t value);
void log_ms(log_line *e, const char *name, double ms);
void log_write(server_log *l, log_line *e);      // takes the line
// A message in plain words on a terminal ("weft: ready: ..."), or a log line in a file or as JSON.
void log_say(server_log *l, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);
void log_warn(server_log *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
#endif
