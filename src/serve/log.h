// log: what an operator sees of the server, a line for each event: a request that is over, a model that loads or
// leaves, a warning.  Lines are written by a thread of their own, so that a full pipe holds up no answer and no model
// that loads; if it stays full, lines are counted and lost.
//
// No line has text of a prompt or an answer, or a key: reasons of refusals come without what they quote (fault.reason).
#ifndef WEFT_SERVE_LOG_H
#define WEFT_SERVE_LOG_H
#include "base/str.h"

enum log_level { LOG_QUIET, LOG_NORMAL, LOG_VERBOSE };
struct log_options {
  const char *path;                    // a file that lines are added to; NULL: stderr
  bool json;                           // each line is a JSON object; otherwise a time, words and name=value
  enum log_level level;
};
typedef struct server_log server_log;
// Opens the file; to be called while the process may.
int log_open(const struct log_options *o, server_log **out, error *err);
int log_start(server_log *l, error *err);        // the thread
void log_close(server_log *l);                   // writes what is left; NULL is fine
bool log_is_json(const server_log *l);
bool log_takes(const server_log *l, enum log_level level);

// A line: log_begin, members in order, log_write.
typedef struct log_line { const server_log *l; str text; } log_line;
log_line log_begin(const server_log *l, const char *event);
void log_word(log_line *e, const char *name, const char *value);         // without its name where lines are no JSON
void log_text(log_line *e, const char *name, const char *value);         // NULL or "": left out
void log_count(log_line *e, const char *name, int64_t value);
void log_ms(log_line *e, const char *name, double ms);
void log_write(server_log *l, log_line *e);      // takes the line
// Something that is said on a terminal in its own words ("weft: ready: ..."), and as a line in a file or as JSON.
void log_say(server_log *l, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);
void log_warn(server_log *l, const char *fmt, ...) PRINTF_LIKE(2, 3);
#endif
