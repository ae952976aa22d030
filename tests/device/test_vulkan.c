// Vulkan devices: which one is opened, what is said where there is none.
#define _GNU_SOURCE
#include "render/rig.h"
#include "device/vulkan.h"

// false, and a line that says so, where this machine has no Vulkan
static bool have_vulkan(vk **out) {
  error err = {0};
  if (!vk_open(NULL, out, &err)) return true;
  print_message("skipped: %s\n", err.text);
  return false;
}

static void test_open(void **state) {
  (void)state;
  vk *d, *same;
  error err = {0};
  if (!have_vulkan(&d)) skip();
  const char *device = strstr(vk_name(d), ": ");
  assert_non_null(device);
  assert_int_equal(vk_open(device + 2, &same, &err), 0);
  assert_string_equal(vk_name(same), vk_name(d));
  vk_close(same);
  assert_int_equal(vk_open("no such device", &same, &err), -1);
  assert_null(same);
  assert_non_null(strstr(err.text, "'no such device'"));
  assert_int_equal(vk_open("4711", &same, &err), -1);
  str all = {0};
  assert_int_equal(vk_list(&all, &err), 0);
  assert_int_equal(strncmp(str_c(&all), vk_name(d), strlen(vk_name(d))), 0);
  str_free(&all);
  vk_close(d);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_open)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
