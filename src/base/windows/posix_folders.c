// Lists folders: see posix/dirent.h.
#include <windows.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct posix_folder { int fd; HANDLE search; WIN32_FIND_DATAA found; bool first; struct dirent entry; };

DIR *fdopendir(int fd) {
  char path[4096];
  DWORD n = GetFinalPathNameByHandleA((HANDLE)_get_osfhandle(fd), path, sizeof path - 2, FILE_NAME_NORMALIZED);
  DIR *d = n && n < sizeof path - 2 ? calloc(1, sizeof *d) : NULL;
  if (!d) return NULL;
  memcpy(path + n, "\\*", 3);
  *d = (DIR){.fd = fd, .first = true};
  d->search = FindFirstFileA(path, &d->found);
  if (d->search != INVALID_HANDLE_VALUE) return d;
  free(d);
  errno = ENOENT;
  return NULL;
}

DIR *opendir(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd < 0 ? NULL : fdopendir(fd);
  if (!d && fd >= 0) _close(fd);
  return d;
}

struct dirent *readdir(DIR *d) {
  if (!d->first && !FindNextFileA(d->search, &d->found)) return NULL;
  d->first = false;
  DWORD kind = d->found.dwFileAttributes;
  d->entry.d_type = kind & FILE_ATTRIBUTE_REPARSE_POINT ? DT_LNK : kind & FILE_ATTRIBUTE_DIRECTORY ? DT_DIR : DT_REG;
  snprintf(d->entry.d_name, sizeof d->entry.d_name, "%s", d->found.cFileName);
  return &d->entry;
}

int dirfd(DIR *d) { return d->fd; }

int closedir(DIR *d) {
  FindClose(d->search);
  _close(d->fd);
  free(d);
  return 0;
}
