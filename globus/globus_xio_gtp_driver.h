/* What programs may ask of the driver `gtp` of Globus XIO, for globus_xio_attr_cntl. The same by
 * name in a stack's string, as in -dcstack "gtp:weight=500": port, listen_range, max_rate,
 * weight. */
#ifndef GLOBUS_XIO_GTP_DRIVER_H
#define GLOBUS_XIO_GTP_DRIVER_H

enum {
    GLOBUS_XIO_GTP_SET_PORT = 1,     /* int: where a server listens, TCP and UDP; 0 for any */
    GLOBUS_XIO_GTP_SET_LISTEN_RANGE, /* int, int: the first and the last port to try. Without it
                                        GLOBUS_TCP_PORT_RANGE holds */
    GLOBUS_XIO_GTP_SET_MAX_RATE,     /* globus_off_t: limit of each direction, bit/s */
    GLOBUS_XIO_GTP_SET_WEIGHT        /* int: weight against other sessions, thousandths */
};

#endif
