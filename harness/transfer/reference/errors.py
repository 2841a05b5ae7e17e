"""What goes wrong with a transfer."""


class TransferError(RuntimeError):
    """A transfer could not be carried out."""


class PayloadError(TransferError):
    """What arrived is not the payload that was sent, or not one that this stage can use."""


class TransportError(TransferError, ConnectionError):
    """The way to a peer failed. The text names the peer's endpoint and what was expected of it."""


class Unreachable(TransportError):
    """Nobody takes a connection at the endpoint."""


class PeerBusy(TransportError):
    """The peer serves as many connections as it may, and took no more."""


class PeerClosed(TransportError):
    """The peer ended the connection before its frame was whole."""


class PeerRestarted(TransportError):
    """What answers at the endpoint is not the listener that this connection began with."""


class ProtocolError(TransportError):
    """What the peer sent is no frame of this protocol, or one that is not due here."""


class PeerTimeout(TransferError, TimeoutError):
    """The peer did not do its part of an exchange within the deadline."""
