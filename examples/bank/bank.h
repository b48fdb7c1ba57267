/* bank.h - an account, and two threads that use it side by side. */
#ifndef BANK_H
#define BANK_H

#ifdef __cplusplus
extern "C" {
#endif

/* Transfers 100 from a new account of 1000 while another thread charges the fee of an audit, and returns the
 * balance afterwards. */
long transfer_during_audit(void);

#ifdef __cplusplus
}
#endif

#endif
