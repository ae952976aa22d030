// address_tool < addresses, one a line: what each is for, by base/address.h. For tests that know it from elsewhere.
#include <stdio.h>
#include <string.h>
#include "base/address.h"

int main(void) {
  static const char *const names[] = {"public", "private", "special"};
  char line[128];
  while (fgets(line, sizeof line, stdin)) {
    struct sockaddr_storage a;
    line[strcspn(line, "\n")] = 0;
    puts(address_parse(line, &a) ? names[address_kind_of((struct sockaddr *)&a)] : "none");
  }
  return 0;
}
