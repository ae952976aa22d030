// Looks up the lowest address of a thread's stack. It does not change, and the look-up may read a file, so each thread
// does it once.
#include "base/stack.h"
#include "base/os.h"

size_t stack_left(void) {
  static _Thread_local bool known;
  static _Thread_local uintptr_t end;      // 0: unknown
  uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (!known) end = os_stack_end();
  known = true;
  return !end ? SIZE_MAX : here > end ? here - end : 0;
}
