// manual: further output of the table of options: lists for the manual page and docs/from-llama.cpp.md, and shell
// completion. scripts/docs.sh writes them to their files.
#ifndef WEFT_APP_MANUAL_H
#define WEFT_APP_MANUAL_H

// weft help --as KIND [COMMAND]: prints one of man (of a command, or "environment"), llama.cpp, options, variables
// (Markdown tables), bash, zsh and fish. Returns the exit status.
int manual_print(const char *kind, const char *command);
#endif
