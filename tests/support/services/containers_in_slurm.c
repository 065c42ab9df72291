/*
 * Container options for a test's own Slurm: real options of the real srun, containers as plain directories.
 *
 * Registers the options that container plugins of Slurm are known for and is as strict about them as those are: an
 * empty value, a second and different value, or two that exclude each other are refused by srun itself. A task then runs in a mount
 * namespace of its own, in a file system unpacked from a squashfs file or by the importer, which is called with the
 * image's name and a directory. Saving happens when the step ends, after its tasks, as in production.
 *
 * plugstack.conf: required containers_in_slurm.so DIRECTORY IMPORTER
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(pyxis, 1)

enum value { IMAGE, MOUNTS, WORKDIR, SAVE, ENV, VALUES };
enum choice { HOME, ROOT, WRITABLE, CHOICES };

static const char *value_names[VALUES] = {
	"container-image", "container-mounts", "container-workdir", "container-save", "container-env"};
static char *values[VALUES];
static int choices[CHOICES] = {-1, -1, -1};
static char root[PATH_MAX];

#define REFUSE(...) (slurm_error("pyxis: " __VA_ARGS__), -1)

static int take_value(int which, const char *given, int remote)
{
	(void)remote;
	if (given == NULL || *given == '\0')
		return REFUSE("--%s: argument required", value_names[which]);
	if (values[which] != NULL && strcmp(values[which], given) != 0)
		return REFUSE("--%s specified multiple times", value_names[which]);
	if (which == SAVE && given[strlen(given) - 1] == '/')
		return REFUSE("--container-save: target is a directory");
	values[which] = strdup(given);
	return 0;
}

/* Two options for each choice: 2 * which asks for it, 2 * which + 1 against it. */
static int take_choice(int code, const char *given, int remote)
{
	int which = code / 2, wanted = code % 2 == 0;
	(void)given, (void)remote;
	if (choices[which] != -1 && choices[which] != wanted)
		return REFUSE("options that exclude each other were specified");
	choices[which] = wanted;
	return 0;
}

static struct spank_option options[] = {
	{"container-image", "IMAGE|PATH", "[pyxis] image or squashfs file", 1, IMAGE, take_value},
	{"container-mounts", "SRC:DST[:FLAGS],...", "[pyxis] bind mounts", 1, MOUNTS, take_value},
	{"container-workdir", "PATH", "[pyxis] working directory", 1, WORKDIR, take_value},
	{"container-save", "PATH", "[pyxis] save to a squashfs file", 1, SAVE, take_value},
	{"container-env", "NAME,...", "[pyxis] variables of the host", 1, ENV, take_value},
	{"container-mount-home", NULL, "[pyxis] mount the home", 0, 2 * HOME, take_choice},
	{"no-container-mount-home", NULL, "[pyxis] do not", 0, 2 * HOME + 1, take_choice},
	{"container-remap-root", NULL, "[pyxis] root inside", 0, 2 * ROOT, take_choice},
	{"no-container-remap-root", NULL, "[pyxis] not root inside", 0, 2 * ROOT + 1, take_choice},
	{"container-writable", NULL, "[pyxis] writable", 0, 2 * WRITABLE, take_choice},
	{"container-readonly", NULL, "[pyxis] read-only", 0, 2 * WRITABLE + 1, take_choice},
	SPANK_OPTIONS_TABLE_END};

int slurm_spank_init(spank_t sp, int argc, char **argv)
{
	(void)argc, (void)argv;
	if (spank_context() != S_CTX_LOCAL && spank_context() != S_CTX_REMOTE)
		return 0;
	for (struct spank_option *option = options; option->name; option++)
		if (spank_option_register(sp, option) != ESPANK_SUCCESS)
			return REFUSE("couldn't register option %s", option->name);
	return 0;
}

/* Runs a program without a shell; its words are shown if it fails. */
static int run(char *const argv[])
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		unsetenv("LD_PRELOAD");
		int nowhere = open("/dev/null", O_RDWR);
		dup2(nowhere, 0);
		dup2(nowhere, 1);
		execvp(argv[0], argv);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
		return REFUSE("%s failed", argv[0]);
	return 0;
}

static int unpack(char *importer)
{
	if (strspn(values[IMAGE], "./") > 0)
		return run((char *[]){"unsquashfs", "-quiet", "-no-progress", "-d", root, values[IMAGE], NULL});
	return run((char *[]){importer, values[IMAGE], root, NULL});
}

static int make_target(const char *source, const char *target)
{
	char path[PATH_MAX];
	struct stat what;
	snprintf(path, sizeof path, "%s%s", root, target);
	if (stat(source, &what) < 0)
		return REFUSE("couldn't mount %s: %s", source, strerror(errno));
	for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(path, 0755);
		*slash = '/';
	}
	if (S_ISDIR(what.st_mode))
		mkdir(path, 0755);
	else
		close(open(path, O_CREAT | O_WRONLY, 0644));
	if (mount(source, path, NULL, MS_BIND | MS_REC, NULL) < 0)
		return REFUSE("couldn't mount %s at %s: %s", source, target, strerror(errno));
	return 0;
}

static int mount_one(char *entry)
{
	char *source = strsep(&entry, ":"), *target = strsep(&entry, ":");
	if (target == NULL || *target != '/' || strspn(source, "./") == 0)
		return REFUSE("--container-mounts: invalid format: %s", source);
	if (make_target(source, target) < 0)
		return -1;
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%s%s", root, target);
	if (entry && strstr(entry, "ro"))
		return mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
	return 0;
}

static int enter(void)
{
	char *mounts = values[MOUNTS] ? strdup(values[MOUNTS]) : NULL, *entry;
	const char *always[] = {"/proc", "/sys", "/dev", NULL};
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0)
		return REFUSE("no mount namespace: %s", strerror(errno));
	for (const char **place = always; *place; place++)
		if (make_target(*place, *place) < 0)
			return -1;
	while ((entry = strsep(&mounts, ",")) != NULL)
		if (mount_one(entry) < 0)
			return -1;
	if (chroot(root) < 0 || chdir("/") < 0)
		return REFUSE("no root: %s", strerror(errno));
	if (values[WORKDIR] && chdir(values[WORKDIR]) < 0)
		return REFUSE("couldn't chdir to %s: %s", values[WORKDIR], strerror(errno));
	return 0;
}

/* An error here reaches srun as the task's; one of user_init would not. */
int slurm_spank_task_init(spank_t sp, int argc, char **argv)
{
	if (values[IMAGE] == NULL)
		return 0;
	if (argc < 2 || root[0] == '\0' || unpack(argv[1]) < 0 || enter() < 0)
		return REFUSE("couldn't start container");
	spank_setenv(sp, "PATH", "/usr/local/bin:/usr/bin:/bin", 1);
	return 0;
}

int slurm_spank_user_init(spank_t sp, int argc, char **argv)
{
	uint32_t job = 0, step = 0;
	spank_get_item(sp, S_JOB_ID, &job);
	spank_get_item(sp, S_JOB_STEPID, &step);
	if (argc > 0 && values[IMAGE] != NULL)
		snprintf(root, sizeof root, "%s/%u.%u", argv[0], job, step);
	return 0;
}

int slurm_spank_exit(spank_t sp, int argc, char **argv)
{
	int code = 0;
	(void)sp, (void)argc, (void)argv;
	if (spank_context() != S_CTX_REMOTE || root[0] == '\0')
		return 0;
	if (values[SAVE])
		code = run((char *[]){"mksquashfs", root, values[SAVE], "-noappend", "-quiet", "-no-progress",
				      "-noI", "-noD", "-noF", "-noX", NULL});
	if (run((char *[]){"rm", "-rf", "--one-file-system", root, NULL}) < 0)
		return -1;
	return code;
}
