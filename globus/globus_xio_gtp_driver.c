/* A Globus XIO driver that carries byte streams over GTP, by libgtp.
 *
 * It is a transport driver: at the bottom of a stack, in TCP's place. A server's contact and a
 * client's are host:port, as TCP's. GridFTP takes it for its data channels:
 *
 *     globus-gridftp-server -dc-whitelist gtp …
 *     globus-url-copy -dcstack gtp …
 *
 * Descriptors of libgtp are the kernel's, so that XIO's own event loop waits for them, reads and
 * writes. Three things differ from TCP: connecting and accepting are libgtp's calls; a connection
 * that broke must be told from one that ended, which reading alone does not show; and closing is
 * libgtp's call. docs/SOCKETS.md says which keys are believed. */

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <globus/globus_xio_driver.h>
#include <globus/globus_xio_load.h>
#include <globus/globus_xio_system.h>
#include <globus/globus_xio_util.h>

#include "globus_xio_gtp_driver.h"
#include "gtp.h"

GlobusXIODeclareDriver(gtp);
GlobusXIODeclareModule(gtp);

/* What a connection or a server is asked for; ports in the host's order, 0 for any. */
typedef struct {
    int first_port;
    int last_port;
    globus_off_t max_rate; /* bit/s, 0 for none */
    int weight;            /* thousandths, 0 for 1 */
} attr_t;

/* Connections that wait to be accepted. */
#define BACKLOG 64

/* A connection, a server that listens, or a connection that was accepted and is not open yet: it
 * has no `system`. */
typedef struct {
    int fd;
    globus_xio_system_socket_handle_t system;
} gtp_handle_t;

/* Accepting, reading or writing that is under way. */
typedef struct {
    gtp_handle_t *handle;
    globus_xio_operation_t op;
    globus_xio_iovec_t none;
} waiting_t;

/* Connecting that is under way. */
typedef struct {
    gtp_handle_t *handle;
    globus_xio_operation_t op;
    globus_xio_iovec_t none;
    attr_t attr;
    struct addrinfo *found;
    struct addrinfo *next;
} opening_t;

/* The ports that GLOBUS_TCP_PORT_RANGE names, for servers: they are opened in firewalls. */
static void ports_of_environment(attr_t *attr)
{
    const char *range = getenv("GLOBUS_TCP_PORT_RANGE");
    int first, last;

    if (range == NULL) {
        return;
    }
    if (sscanf(range, "%d,%d", &first, &last) == 2 || sscanf(range, "%d %d", &first, &last) == 2) {
        if (first > 0 && first <= last && last <= UINT16_MAX) {
            attr->first_port = first;
            attr->last_port = last;
        }
    }
}

static globus_result_t attr_init(void **out)
{
    GlobusXIOName(attr_init);
    attr_t *attr = calloc(1, sizeof *attr);

    if (attr == NULL) {
        return GlobusXIOErrorMemory("attr");
    }
    ports_of_environment(attr);
    *out = attr;
    return GLOBUS_SUCCESS;
}

static globus_result_t attr_copy(void **out, void *from)
{
    GlobusXIOName(attr_copy);
    attr_t *attr = malloc(sizeof *attr);

    if (attr == NULL) {
        return GlobusXIOErrorMemory("attr");
    }
    memcpy(attr, from, sizeof *attr);
    *out = attr;
    return GLOBUS_SUCCESS;
}

static globus_result_t attr_destroy(void *attr)
{
    free(attr);
    return GLOBUS_SUCCESS;
}

static globus_result_t attr_cntl(void *driver_attr, int command, va_list ap)
{
    GlobusXIOName(attr_cntl);
    attr_t *attr = driver_attr;
    int number, last;

    switch (command) {
    case GLOBUS_XIO_GTP_SET_PORT:
        number = va_arg(ap, int);
        if (number < 0 || number > UINT16_MAX) {
            return GlobusXIOErrorParameter("port");
        }
        attr->first_port = attr->last_port = number;
        return GLOBUS_SUCCESS;
    case GLOBUS_XIO_GTP_SET_LISTEN_RANGE:
        number = va_arg(ap, int);
        last = va_arg(ap, int);
        if (number < 1 || number > last || last > UINT16_MAX) {
            return GlobusXIOErrorParameter("listen range");
        }
        attr->first_port = number;
        attr->last_port = last;
        return GLOBUS_SUCCESS;
    case GLOBUS_XIO_GTP_SET_MAX_RATE:
        attr->max_rate = va_arg(ap, globus_off_t);
        if (attr->max_rate < 0) {
            return GlobusXIOErrorParameter("max rate");
        }
        return GLOBUS_SUCCESS;
    case GLOBUS_XIO_GTP_SET_WEIGHT:
        number = va_arg(ap, int);
        if (number < 1) {
            return GlobusXIOErrorParameter("weight");
        }
        attr->weight = number;
        return GLOBUS_SUCCESS;
    default:
        return GlobusXIOErrorInvalidCommand(command);
    }
}

static globus_xio_string_cntl_table_t options[] = {
    {"port", GLOBUS_XIO_GTP_SET_PORT, globus_xio_string_cntl_int},
    {"listen_range", GLOBUS_XIO_GTP_SET_LISTEN_RANGE, globus_xio_string_cntl_int_int},
    {"max_rate", GLOBUS_XIO_GTP_SET_MAX_RATE, globus_xio_string_cntl_formated_off},
    {"weight", GLOBUS_XIO_GTP_SET_WEIGHT, globus_xio_string_cntl_int},
    {NULL, 0, NULL},
};

/* Why libgtp refused, with its own words where it has some. */
static globus_result_t failed(const char *call, int error)
{
    GlobusXIOName(failed);
    globus_result_t result = GlobusXIOErrorSystemError(call, error);
    const char *reason = g_reason();

    if (reason != NULL && *reason != '\0') {
        result = GlobusXIOErrorWrapFailedWithMessage(result, "GTP: %s", reason);
    }
    return result;
}

/* Makes a socket with what is asked for. */
static globus_result_t make_socket(int family, int flags, const attr_t *attr, int *out)
{
    int fd = g_socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    int refused = fd < 0;

    if (fd >= 0 && attr != NULL && attr->max_rate > 0) {
        uint64_t rate = (uint64_t)attr->max_rate;
        refused |= g_setsockopt(fd, SOL_GTP, GTP_MAX_RATE, &rate, sizeof rate) != 0;
    }
    if (fd >= 0 && !refused && attr != NULL && attr->weight > 0) {
        uint32_t weight = (uint32_t)attr->weight;
        refused |= g_setsockopt(fd, SOL_GTP, GTP_WEIGHT, &weight, sizeof weight) != 0;
    }
    if (refused) {
        globus_result_t result = failed(fd < 0 ? "g_socket" : "g_setsockopt", errno);
        if (fd >= 0) {
            g_close(fd);
        }
        return result;
    }
    *out = fd;
    return GLOBUS_SUCCESS;
}

/* Makes a handle of a socket, which it closes where that fails. */
static globus_result_t handle_of(int fd, gtp_handle_t **out)
{
    GlobusXIOName(handle_of);
    gtp_handle_t *handle = calloc(1, sizeof *handle);

    /* An error object lives until somebody takes it, so none is made without an error. */
    if (handle == NULL) {
        g_close(fd);
        return GlobusXIOErrorMemory("handle");
    }
    handle->fd = fd;
    globus_result_t result =
        globus_xio_system_socket_init(&handle->system, fd, GLOBUS_XIO_SYSTEM_TCP);

    if (result != GLOBUS_SUCCESS) {
        free(handle);
        g_close(fd);
        return result;
    }
    *out = handle;
    return GLOBUS_SUCCESS;
}

/* Keeps an accepted socket until it is opened. */
static globus_result_t link_of(int fd, gtp_handle_t **out)
{
    GlobusXIOName(link_of);
    gtp_handle_t *link = calloc(1, sizeof *link);

    if (link == NULL) {
        g_close(fd);
        return GlobusXIOErrorMemory("link");
    }
    link->fd = fd;
    *out = link;
    return GLOBUS_SUCCESS;
}

static void drop(gtp_handle_t *handle)
{
    if (handle == NULL) {
        return;
    }
    if (handle->system != NULL) {
        globus_xio_system_socket_destroy(handle->system);
    }
    if (handle->fd >= 0) {
        g_close(handle->fd);
    }
    free(handle);
}

static waiting_t *wait_of(gtp_handle_t *handle, globus_xio_operation_t op)
{
    waiting_t *waiting = calloc(1, sizeof *waiting);

    if (waiting != NULL) {
        waiting->handle = handle;
        waiting->op = op;
    }
    return waiting;
}

/* Where the socket's own address says that it listens, as host:port; `host` if it is any. */
static globus_result_t contact_of(
    int fd, int (*ask)(int, struct sockaddr *, socklen_t *), int numeric, char **out)
{
    GlobusXIOName(contact_of);
    globus_sockaddr_t address;
    socklen_t length = sizeof address;
    int flags = GLOBUS_LIBC_ADDR_LOCAL | (numeric ? GLOBUS_LIBC_ADDR_NUMERIC : 0);

    memset(&address, 0, sizeof address);
    if (ask(fd, (struct sockaddr *)&address, &length) != 0) {
        return GlobusXIOErrorSystemError("g_getsockname", errno);
    }
    return globus_libc_addr_to_contact_string(&address, flags, out);
}

/* Listens on a free port of the range. */
static globus_result_t listen_at(const attr_t *attr, int *out)
{
    GlobusXIOName(listen_at);
    int first = attr != NULL ? attr->first_port : 0;
    int last = attr != NULL ? attr->last_port : 0;

    for (int port = first; port <= last; port++) {
        struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
        int fd;
        globus_result_t result = make_socket(AF_INET6, SOCK_NONBLOCK, attr, &fd);

        if (result != GLOBUS_SUCCESS) {
            return result;
        }
        if (g_bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && g_listen(fd, BACKLOG) == 0) {
            *out = fd;
            return GLOBUS_SUCCESS;
        }
        int error = errno;
        int taken = error == EADDRINUSE;

        result = failed("g_listen", error);
        g_close(fd);
        if (!taken || port == last) {
            return result;
        }
        globus_object_free(globus_error_get(result));
    }
    return GlobusXIOErrorParameter("ports");
}

static globus_result_t server_init(
    void *attr, const globus_xio_contact_t *asked, globus_xio_operation_t op)
{
    globus_xio_contact_t contact;
    gtp_handle_t *server;
    char *text;
    int fd = -1;
    globus_result_t result = listen_at(attr, &fd);

    (void)asked;
    if (result != GLOBUS_SUCCESS) {
        return result;
    }
    result = handle_of(fd, &server);
    if (result != GLOBUS_SUCCESS) {
        return result;
    }
    result = contact_of(fd, g_getsockname, 0, &text);
    if (result == GLOBUS_SUCCESS) {
        result = globus_xio_contact_parse(&contact, text);
        free(text);
    }
    if (result == GLOBUS_SUCCESS) {
        result = globus_xio_driver_pass_server_init(op, &contact, server);
        globus_xio_contact_destroy(&contact);
    }
    if (result != GLOBUS_SUCCESS) {
        drop(server);
    }
    return result;
}

static globus_result_t server_destroy(void *server)
{
    drop(server);
    return GLOBUS_SUCCESS;
}

static globus_result_t wait_to_accept(waiting_t *waiting);

/* The server's descriptor can be read: somebody has connected, or another process was quicker. */
static void may_accept(globus_result_t result, globus_size_t count, void *arg)
{
    waiting_t *waiting = arg;
    gtp_handle_t *link = NULL;
    globus_result_t outcome = GLOBUS_SUCCESS;

    (void)count;
    if (result != GLOBUS_SUCCESS && !globus_xio_error_is_eof(result)) {
        outcome = result;
    } else {
        int fd = g_accept(waiting->handle->fd, NULL, NULL);
        if (fd >= 0) {
            outcome = link_of(fd, &link);
        } else if (errno == EAGAIN || errno == ECONNABORTED) {
            outcome = wait_to_accept(waiting);
            if (outcome == GLOBUS_SUCCESS) {
                return;
            }
        } else {
            outcome = failed("g_accept", errno);
        }
    }
    globus_xio_driver_finished_accept(waiting->op, link, outcome);
    free(waiting);
}

/* Nothing is read: reading nothing shows that something could be. */
static globus_result_t wait_to_accept(waiting_t *waiting)
{
    return globus_xio_system_socket_register_read(waiting->op, waiting->handle->system,
        &waiting->none, 1, 0, 0, NULL, may_accept, waiting);
}

static globus_result_t server_accept(void *server, globus_xio_operation_t op)
{
    GlobusXIOName(server_accept);
    waiting_t *waiting = wait_of(server, op);

    if (waiting == NULL) {
        return GlobusXIOErrorMemory("operation");
    }
    globus_result_t result = wait_to_accept(waiting);
    if (result != GLOBUS_SUCCESS) {
        free(waiting);
    }
    return result;
}

static globus_result_t link_destroy(void *link)
{
    drop(link);
    return GLOBUS_SUCCESS;
}

/* What is asked of a server, a link or a connection: addresses. */
static globus_result_t cntl(void *driver_handle, int command, va_list ap)
{
    GlobusXIOName(cntl);
    gtp_handle_t *handle = driver_handle;

    switch (command) {
    case GLOBUS_XIO_GET_LOCAL_CONTACT:
        return contact_of(handle->fd, g_getsockname, 0, va_arg(ap, char **));
    case GLOBUS_XIO_GET_LOCAL_NUMERIC_CONTACT:
        return contact_of(handle->fd, g_getsockname, 1, va_arg(ap, char **));
    case GLOBUS_XIO_GET_REMOTE_CONTACT:
        return contact_of(handle->fd, g_getpeername, 0, va_arg(ap, char **));
    case GLOBUS_XIO_GET_REMOTE_NUMERIC_CONTACT:
        return contact_of(handle->fd, g_getpeername, 1, va_arg(ap, char **));
    default:
        return GlobusXIOErrorInvalidCommand(command);
    }
}

static void end_opening(opening_t *opening, globus_result_t result)
{
    globus_xio_driver_finished_open(opening->handle, opening->op, result);
    freeaddrinfo(opening->found);
    free(opening);
}

static globus_result_t connect_next(opening_t *opening);

/* The descriptor can be written: the connection has come about, or has not. Then the next address
 * is tried. */
static void connected(globus_result_t result, globus_size_t count, void *arg)
{
    GlobusXIOName(connected);
    opening_t *opening = arg;
    int error = 0;
    socklen_t length = sizeof error;

    (void)count;
    if (g_getsockopt(opening->handle->fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
    }
    if (error != 0) {
        result = GlobusXIOErrorSystemError("g_connect", error);
    }
    if (result != GLOBUS_SUCCESS) {
        drop(opening->handle);
        opening->handle = NULL;
        if (opening->next != NULL) {
            globus_object_free(globus_error_get(result));
            result = connect_next(opening);
            if (result == GLOBUS_SUCCESS) {
                return;
            }
        }
    }
    end_opening(opening, result);
}

/* Begins to connect to one address. */
static globus_result_t connect_to(opening_t *opening, const struct addrinfo *to)
{
    int fd;
    globus_result_t result = make_socket(to->ai_family, SOCK_NONBLOCK, &opening->attr, &fd);

    if (result != GLOBUS_SUCCESS) {
        return result;
    }
    if (g_connect(fd, to->ai_addr, to->ai_addrlen) != 0 && errno != EINPROGRESS) {
        result = failed("g_connect", errno);
        g_close(fd);
        return result;
    }
    result = handle_of(fd, &opening->handle);
    if (result != GLOBUS_SUCCESS) {
        return result;
    }
    /* Nothing is written: writing nothing shows that something could be. */
    result = globus_xio_system_socket_register_write(opening->op, opening->handle->system,
        &opening->none, 1, 0, 0, NULL, connected, opening);
    if (result != GLOBUS_SUCCESS) {
        drop(opening->handle);
        opening->handle = NULL;
    }
    return result;
}

/* Begins to connect to the next address at which that can begin. */
static globus_result_t connect_next(opening_t *opening)
{
    globus_result_t result = GLOBUS_FAILURE;

    while (opening->next != NULL) {
        const struct addrinfo *to = opening->next;
        opening->next = to->ai_next;
        result = connect_to(opening, to);
        if (result == GLOBUS_SUCCESS || opening->next == NULL) {
            break;
        }
        globus_object_free(globus_error_get(result));
    }
    return result;
}

/* Opens a connection that was accepted. */
static globus_result_t open_accepted(gtp_handle_t *link, globus_xio_operation_t op)
{
    gtp_handle_t *handle;
    globus_result_t result = handle_of(link->fd, &handle);

    /* XIO destroys the link, which closes nothing from here on. */
    link->fd = -1;
    if (result == GLOBUS_SUCCESS) {
        globus_xio_driver_finished_open(handle, op, GLOBUS_SUCCESS);
    }
    return result;
}

static globus_result_t transport_open(const globus_xio_contact_t *contact, void *link, void *attr,
    globus_xio_operation_t op)
{
    GlobusXIOName(transport_open);
    struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};

    if (link != NULL) {
        return open_accepted(link, op);
    }
    if (contact->host == NULL || contact->port == NULL) {
        return GlobusXIOErrorContactString("host:port is needed");
    }
    opening_t *opening = calloc(1, sizeof *opening);
    if (opening == NULL) {
        return GlobusXIOErrorMemory("operation");
    }
    int error = getaddrinfo(contact->host, contact->port, &wanted, &opening->found);
    if (error != 0) {
        free(opening);
        return GlobusXIOErrorContactString(gai_strerror(error));
    }
    opening->op = op;
    opening->next = opening->found;
    if (attr != NULL) {
        opening->attr = *(attr_t *)attr;
    }
    globus_result_t result = connect_next(opening);
    if (result != GLOBUS_SUCCESS) {
        freeaddrinfo(opening->found);
        free(opening);
    }
    return result;
}

static globus_result_t transport_close(void *handle, void *attr, globus_xio_operation_t op)
{
    (void)attr;
    drop(handle);
    globus_xio_driver_finished_close(op, GLOBUS_SUCCESS);
    return GLOBUS_SUCCESS;
}

/* An end that reading showed: whether it is one, or the connection broke. */
static globus_result_t end_of(gtp_handle_t *handle, globus_result_t end)
{
    GlobusXIOName(end_of);
    char byte;

    if (g_recv(handle->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno != EAGAIN) {
        globus_object_free(globus_error_get(end));
        return GlobusXIOErrorSystemError("g_recv", errno);
    }
    return end;
}

static void has_read(globus_result_t result, globus_size_t count, void *arg)
{
    waiting_t *waiting = arg;

    if (result != GLOBUS_SUCCESS && globus_xio_error_is_eof(result)) {
        result = end_of(waiting->handle, result);
    }
    globus_xio_driver_finished_read(waiting->op, result, count);
    free(waiting);
}

/* Whether a caller wants what is there at once, and not to be called back. */
static int takes_what_is_there(const globus_xio_iovec_t *pieces, int count, globus_xio_operation_t op)
{
    return globus_xio_operation_get_wait_for(op) == 0 && (count > 1 || pieces[0].iov_len > 0);
}

static globus_result_t transport_read(
    void *driver_handle, const globus_xio_iovec_t *pieces, int count, globus_xio_operation_t op)
{
    GlobusXIOName(transport_read);
    gtp_handle_t *handle = driver_handle;
    waiting_t *waiting = wait_of(handle, op);
    globus_size_t came = 0;
    globus_result_t result;

    if (waiting == NULL) {
        return GlobusXIOErrorMemory("operation");
    }
    if (takes_what_is_there(pieces, count, op)) {
        result = globus_xio_system_socket_read(handle->system, pieces, count, 0, 0, NULL, &came);
        has_read(result, came, waiting);
        return GLOBUS_SUCCESS;
    }
    result = globus_xio_system_socket_register_read(op, handle->system, pieces, count,
        globus_xio_operation_get_wait_for(op), 0, NULL, has_read, waiting);
    if (result != GLOBUS_SUCCESS) {
        free(waiting);
    }
    return result;
}

static void has_written(globus_result_t result, globus_size_t count, void *arg)
{
    waiting_t *waiting = arg;

    globus_xio_driver_finished_write(waiting->op, result, count);
    free(waiting);
}

static globus_result_t transport_write(
    void *driver_handle, const globus_xio_iovec_t *pieces, int count, globus_xio_operation_t op)
{
    GlobusXIOName(transport_write);
    gtp_handle_t *handle = driver_handle;
    waiting_t *waiting = wait_of(handle, op);
    globus_size_t went = 0;
    globus_result_t result;

    if (waiting == NULL) {
        return GlobusXIOErrorMemory("operation");
    }
    if (takes_what_is_there(pieces, count, op)) {
        result = globus_xio_system_socket_write(handle->system, pieces, count, 0, 0, NULL, &went);
        has_written(result, went, waiting);
        return GLOBUS_SUCCESS;
    }
    result = globus_xio_system_socket_register_write(op, handle->system, pieces, count,
        globus_xio_operation_get_wait_for(op), 0, NULL, has_written, waiting);
    if (result != GLOBUS_SUCCESS) {
        free(waiting);
    }
    return result;
}

static globus_result_t driver_init(globus_xio_driver_t *out)
{
    globus_xio_driver_t driver;
    globus_result_t result = globus_xio_driver_init(&driver, "gtp", NULL);

    if (result != GLOBUS_SUCCESS) {
        return result;
    }
    globus_xio_driver_set_transport(
        driver, transport_open, transport_close, transport_read, transport_write, cntl);
    globus_xio_driver_set_server(
        driver, server_init, server_accept, server_destroy, cntl, cntl, link_destroy);
    globus_xio_driver_set_attr(driver, attr_init, attr_copy, attr_cntl, attr_destroy);
    globus_xio_driver_string_cntl_set_table(driver, options);
    *out = driver;
    return GLOBUS_SUCCESS;
}

static void driver_destroy(globus_xio_driver_t driver)
{
    globus_xio_driver_destroy(driver);
}

GlobusXIODefineDriver(gtp, driver_init, driver_destroy);

static int activate(void)
{
    int code = globus_module_activate(GLOBUS_XIO_SYSTEM_MODULE);

    if (code == GLOBUS_SUCCESS) {
        GlobusXIORegisterDriver(gtp);
    }
    return code;
}

static int deactivate(void)
{
    GlobusXIOUnRegisterDriver(gtp);
    return globus_module_deactivate(GLOBUS_XIO_SYSTEM_MODULE);
}

static globus_version_t version = {0, 1, 0, 0};

GlobusXIODefineModule(gtp) = {"globus_xio_gtp", activate, deactivate, NULL, NULL, &version, NULL};
