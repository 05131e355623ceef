class UserModel(Tower):
    """A small convolutional network for images of any size."""

    @model_property
    def inference(self):
        # self.x: the batch, float32 [N, height, width, channels], values of 0 to 255 minus the mean.
        layers = tf.keras.layers
        net = self.x / 255
        net = layers.Conv2D(32, 3, padding="same", activation="relu")(net)
        net = layers.MaxPooling2D()(net)
        net = layers.Conv2D(64, 3, padding="same", activation="relu")(net)
        net = layers.GlobalAveragePooling2D()(net)
        net = layers.Dropout(0.5)(net, training=self.is_training)
        return layers.Dense(self.nclasses)(net)  # one logit per class

    @model_property
    def loss(self):
        # self.y: the labels, int64 [N], class indexes.
        accuracy = digits.classification_accuracy(self.inference, self.y)
        self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.classification_loss(self.inference, self.y)
