// Queries drivers in a child process: see ask_driver.h.
#define _GNU_SOURCE
#include "device/ask_driver.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/child.h"
#include "base/message.h"

enum { ANSWER_S = 60, MOST = 1 << 16 };

typedef struct asking { driver_list *list; int its; } asking;
typedef struct answer_head { int32_t status; uint32_t n; } answer_head;

// The child skips the exit handlers of drivers.
static void be_asked(void *ctx) {
  const asking *a = ctx;
  str out = {0};
  error err = {0};
  child_begin("weft-drivers", &a->its, 1);
  answer_head head = {.status = a->list(&out, &err)};
  if (head.status) { out.n = 0; str_add(&out, err.text); }
  head.n = (uint32_t)min_i64((int64_t)out.n, MOST);
  struct iovec parts[] = {{&head, sizeof head}, {out.at, head.n}};
  _exit(message_send(a->its, parts, 2) ? 0 : 3);
}

static int take_answer(int fd, str *out, error *err) {
  struct timeval most = {.tv_sec = ANSWER_S};
  answer_head head;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (!message_receive(fd, &head, sizeof head) || head.n > MOST) return 1;
  char *text = xcalloc((size_t)head.n + 1, 1);
  bool whole = !head.n || message_receive(fd, text, head.n);
  if (whole && head.status) error_set(err, "%s", text);
  else if (whole) str_addn(out, text, head.n);
  free(text);
  return !whole ? 1 : head.status ? -1 : 0;
}

int ask_driver(driver_list *list, str *out, error *err) {
  int pair[2], status = 0;
  struct rusage used;
  child_process *child = NULL;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return list(out, err);
  asking a = {list, pair[1]};
  bool made = !child_make(be_asked, &a, &child);
  close(pair[1]);
  int r = made ? take_answer(pair[0], out, err) : list(out, err);       // without a child process: in this process
  close(pair[0]);
  bool hung = made && child_end(child, r == 1 ? 1 : 0, &status, &used);
  if (r != 1) return r;
  if (!hung && WIFSIGNALED(status))
    return error_set(err, "its driver ended the process that asked it (signal %d, %s)", WTERMSIG(status),
                     strsignal(WTERMSIG(status)));
  return error_set(err, "its driver %s", hung ? "does not answer" : "ended the process that asked it");
}
