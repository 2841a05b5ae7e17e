"""What goes wrong with a transfer."""


class TransferError(RuntimeError):
    """A transfer could not be carried out."""


class PayloadError(TransferError):
    """What arrived is not the payload that was sent, or not one that this stage can use."""
